"""The mean of a score over points, or the points' own."""

from jaxtyping import Array, Float


def average(terms: Float[Array, " n"], per_point: bool) -> Array:
    return terms if per_point else terms.mean()

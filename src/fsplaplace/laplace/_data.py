"""Data as rows that are read in blocks: arrays, memory-mapped arrays, or batches that can be passed over again."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from fsplaplace.arguments import check_readable, check_squares, described
from fsplaplace.host import scattered, to_device
from fsplaplace.laplace import _choices
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Extent, Model, warn_if_coarse, warn_if_coarse_targets
from fsplaplace.prior import Prior
from fsplaplace.training import check_types, check_widths


class Part(NamedTuple):
    """Some rows of the data, checked, on the host: inputs in the weights' dtype, and targets."""

    inputs: Float[np.ndarray, "b ..."]
    targets: Shaped[np.ndarray, "b ..."]


class Rows:
    """n rows of data, never held together unless they are few.

    Attributes:
        num_rows: n.
        row_shape: the shape of one input.
        coarse: what was said about inputs that the weights' numbers cannot tell apart; None if they can.
    """

    coarse: str | None = None

    def __init__(
        self, parts: Callable[[], Iterator[Part]], take: Callable[[Int[np.ndarray, " k"]], Part] | None = None
    ):
        """`parts` starts a pass over the data, in order; `take` gathers rows where that needs no pass."""
        self._parts, self._take = parts, take
        shapes = [part.inputs.shape for part in parts()]
        if not shapes:
            raise ValueError("X has no batches; pass at least one, as (X, y)")
        self.num_rows: int = sum(shape[0] for shape in shapes)
        self.row_shape: tuple[int, ...] = shapes[0][1:]

    @classmethod
    def held_together(cls, whole: Part) -> "Rows":
        """Rows that are all in memory."""
        return cls(lambda: iter([whole]), lambda index: Part(whole.inputs[index], whole.targets[index]))

    def remembered(self) -> "Rows":
        """These rows as they are now, if they take at most 16 MiB; more are read again when they are asked for."""
        part = self.held()
        if part.inputs.shape[0] < self.num_rows:
            return self
        return Rows.held_together(Part(part.inputs.copy(), part.targets.copy()))

    def parts(self) -> Iterator[Part]:
        """One pass over all rows, in order, in parts as they are read."""
        return self._parts()

    def blocks(self, size: int) -> Iterator[tuple[slice, Part]]:
        """All rows in order, `size` at a time, with where they are; the last block may have fewer."""
        start, waiting = 0, []
        for part in self._parts():
            waiting.append(part)
            have = sum(each.inputs.shape[0] for each in waiting)
            if have < size:
                continue
            joined, used = _join(waiting), 0
            while have - used >= size:
                yield slice(start, start + size), _slice(joined, slice(used, used + size))
                start, used = start + size, used + size
            waiting = [_slice(joined, slice(used, None))] if used < have else []
        if waiting:
            joined = _join(waiting)
            yield slice(start, start + joined.inputs.shape[0]), joined

    def take(self, index: Int[np.ndarray, " k"]) -> Part:
        """These rows, in the order asked for."""
        if self._take is not None:
            return self._take(index)
        order = np.argsort(index, kind="stable")
        found, start = [], 0
        for part in self._parts():
            stop = start + part.inputs.shape[0]
            low, high = np.searchsorted(index[order], [start, stop])
            if high > low:
                here = index[order[low:high]] - start
                found.append(Part(part.inputs[here], part.targets[here]))
            start = stop
        return Part(*(values[np.argsort(order)] for values in _join(found)))

    def spread(self, most: int) -> Part:
        """At most `most` rows, scattered through the data."""
        return self.take(scattered(self.num_rows, most))

    def some(self, index: Int[np.ndarray, " k"]) -> "Rows":
        """These rows as data of their own, in parts that are read when they are needed."""
        size = max(1, _choices.HELD // (np.dtype(np.float32).itemsize * int(np.prod(self.row_shape))))
        pieces = [index[start : start + size] for start in range(0, len(index), size)]
        return Rows(lambda: map(self.take, pieces), lambda chosen: self.take(index[chosen]))

    def held(self) -> Part:
        """All rows, or scattered ones if all would take more than 16 MiB."""
        row = np.dtype(np.float32).itemsize * int(np.prod(self.row_shape))
        return self.spread(max(1, _choices.HELD // row))


def check_rows(
    model: Model, prior: Prior, likelihood: Likelihood, X: ArrayLike | Iterable, y: ArrayLike | None
) -> Rows:
    """The data as rows, with the checks of `fsplaplace.training.check_problem`; they need not fit in memory."""
    check_types(model, prior, likelihood)
    data = read_rows(model, likelihood, X, y)
    few = data.take(np.arange(min(3, data.num_rows)))
    check_widths(model, prior, likelihood, to_device(few.inputs), few.targets)
    return data


def read_rows(model: Model, likelihood: Likelihood, X: ArrayLike | Iterable, y: ArrayLike | None) -> Rows:
    """The data as rows, checked in one pass; a part that is wrong is named."""
    return _array_rows(model, likelihood, X, y) if y is not None else _batch_rows(model, likelihood, X)


def first_rows(X: ArrayLike | Iterable) -> ArrayLike:
    """The array, or the inputs of the first batch, as the caller gave them."""
    if not _is_batches(X):
        return X  # pyright: ignore[reportReturnType]  # what is not to be iterated over is an array, or refused later
    return next((inputs for inputs, _ in _batches(X)), np.zeros((0, 0)))


def num_rows_and_example(X: ArrayLike | Iterable) -> tuple[int, np.ndarray]:
    """n and some rows, without a check: of an array nothing is read, of batches only their lengths."""
    if not _is_batches(X):
        values = np.asarray(X)
        return values.shape[0], values
    sizes = [(np.shape(inputs), inputs) for inputs, _ in _batches(X)]
    return sum(shape[0] for shape, _ in sizes), np.asarray(sizes[0][1])


def _array_rows(model: Model, likelihood: Likelihood, X, y) -> Rows:
    if _is_batches(X):
        _check_rereadable(X)
        raise TypeError(f"X is a {type(X).__name__} to iterate over; pass it as (X, y) batches and leave y out")
    inputs, targets = check_readable(X, "X"), check_readable(y, "y")
    if inputs.nbytes <= _choices.HELD or inputs.ndim < 2:
        whole = _checked(model, likelihood, inputs, targets)
        data = Rows.held_together(whole)
        data.coarse = _warn_if_coarse(model, inputs, whole.targets, targets)
        return data
    if targets.ndim == 0 or targets.shape[0] != inputs.shape[0]:
        raise ValueError(f"y has shape {targets.shape}, but X has {inputs.shape[0]} rows; pass one target for each")
    size = max(1, _choices.HELD // inputs[0].nbytes)

    def parts():
        for start in range(0, inputs.shape[0], size):
            part = slice(start, min(start + size, inputs.shape[0]))
            name = f"X[{part.start}:{part.stop}]"
            yield _checked(model, likelihood.rows(part), inputs[part], targets[part], name=name)

    def take(index):
        return _checked(model, likelihood.rows(index), inputs[index], targets[index])

    data = Rows(parts, take)
    some = slice(None, None, -(-inputs.shape[0] // size))
    data.coarse = _warn_if_coarse(model, inputs[some], take(slice(0, 1)).targets, targets[some])
    return data


def _warn_if_coarse(model: Model, inputs, checked: np.ndarray, targets: np.ndarray) -> str | None:
    """What is said of inputs, and of targets that are compared with outputs as numbers, that lose digits."""
    said = warn_if_coarse(inputs, model.dtype, origin=model.origin)
    # Labels and counts are integers, or few, after their check.
    return said or (warn_if_coarse_targets(targets, model.dtype) if checked.dtype.kind == "f" else None)


def _batch_rows(model: Model, likelihood: Likelihood, batches) -> Rows:
    extent, order = Extent(model.origin), _Order() if likelihood.rows(slice(0, 1)) is not likelihood else None

    def parts():
        start, first = 0, None
        for number, (inputs, targets) in enumerate(_batches(batches)):
            inputs, targets = np.asarray(inputs), np.asarray(targets)
            if order is not None:
                order.check(number, inputs, targets)
            rows = slice(start, start + len(inputs))
            part = _checked(model, likelihood.rows(rows), inputs, targets, name=f"batch {number}")
            first = part.inputs.shape[1:] if first is None else first
            if part.inputs.shape[1:] != first:
                raise ValueError(
                    f"batch {number} has rows of shape {part.inputs.shape[1:]}, but batch 0 has {first}; pass batches of "
                    "one width"
                )
            start = rows.stop
            extent.include(inputs)
            yield part

    data = Rows(parts)
    data.coarse = extent.warn(model.dtype)
    return data


class _Order:
    """The batches of the first pass, told apart by their bytes: likelihoods with one parameter per row need that order."""

    def __init__(self):
        self.seen: list[int] = []

    def check(self, number: int, inputs: np.ndarray, targets: np.ndarray) -> None:
        """Refuse a batch that is not the one that was at this place in the first pass."""
        mark = zlib.crc32(targets.tobytes(), zlib.crc32(inputs.tobytes()))
        if number == len(self.seen):
            self.seen.append(mark)
        elif self.seen[number] != mark:
            raise ValueError(
                f"X: batch {number} has other rows than in the first pass, but the likelihood has one parameter for each row, in "
                "that order; pass batches whose order stays the same (a DataLoader with shuffle=False), arrays, or a likelihood "
                "with one parameter for all rows"
            )


def _is_batches(X: Any) -> bool:
    """Whether X is something to iterate over rather than an array or nested numbers."""
    if isinstance(X, list | tuple):
        return len(X) > 0 and isinstance(X[0], tuple) and len(X[0]) == 2 and np.ndim(X[0][0]) >= 2
    return not hasattr(X, "__array__") and hasattr(X, "__iter__")


def _batches(batches) -> Iterator[tuple[Any, Any]]:
    if hasattr(batches, "__array__") or not hasattr(batches, "__iter__"):
        raise TypeError(
            f"y is missing: X is a {type(batches).__name__}; pass y, or (X, y) batches that can be iterated over again"
        )
    _check_rereadable(batches)
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(
                f"X is {described(batches)} whose batch {number} is {described(batch)}; pass pairs (X, y), or an array as X and its "
                "targets as y"
            )
        yield batch[0], batch[1]


def _check_rereadable(batches) -> None:
    if iter(batches) is batches:
        raise TypeError(
            f"X is a {type(batches).__name__}, which can be read only once, but the data are passed over several times; pass a "
            "list of (X, y) batches, an object whose iter() starts anew (a torch DataLoader, your own class), or arrays"
        )


def _checked(model: Model, likelihood: Likelihood, inputs, targets, *, name: str | None = None) -> Part:
    try:
        inputs = np.asarray(model.check_inputs(inputs))
        targets = likelihood.check_targets(targets, num_rows=inputs.shape[0])
    except ValueError as error:
        if name is None:
            raise
        raise ValueError(f"{name}: {error}") from error
    if targets.dtype.kind != "f":
        return Part(inputs, np.asarray(targets))
    with np.errstate(over="ignore"):  # what is too large is refused in the next line
        targets = targets.astype(model.dtype)
    check_squares(targets, f"{name or type(likelihood).__name__}: y")
    return Part(inputs, targets)


def _join(parts: list[Part]) -> Part:
    return parts[0] if len(parts) == 1 else Part(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _slice(part: Part, rows: slice) -> Part:
    return Part(part.inputs[rows], part.targets[rows])

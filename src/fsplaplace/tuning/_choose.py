"""Ranking candidate kernels by their log evidence."""

import math
import warnings
from collections.abc import Mapping

import equinox as eqx
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern32, Matern52, RationalQuadratic
from gpjax.parameters import PositiveReal
from numpy.typing import ArrayLike
from rich.table import Table

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.host import table_text
from fsplaplace.likelihoods import Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning._fit_prior import FittedPrior, fit_prior


class PriorRanking(eqx.Module):
    """Fitted candidates from the highest log marginal likelihood down; prints as a table."""

    names: tuple[str, ...] = eqx.field(static=True)
    fits: tuple[FittedPrior, ...]

    @property
    def best(self) -> FittedPrior:
        """The first of the ranking."""
        return self.fits[0]

    @property
    def prior(self) -> Prior:
        """The best prior."""
        return self.best.prior

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with the noise fitted together with the best prior."""
        return self.best.likelihood

    def __str__(self) -> str:
        table = Table(title="log marginal likelihood of candidate priors", title_justify="left")
        for heading in ("prior", "log evidence", "to the best", "relative weight", "at a bound"):
            table.add_column(heading, justify="left" if heading == "prior" else "right")
        top = self.best.report.value
        for name, fit in zip(self.names, self.fits, strict=True):
            lost = fit.report.value - top
            bound = ", ".join(row.name for row in fit.report.rows if row.at_bound)
            table.add_row(name, f"{fit.report.value:.3f}", f"{lost:.3f}", f"{math.exp(lost):.2g}", bound)
        return table_text(table, width=110)


@checked
def choose_prior(
    X: ArrayLike,
    y: ArrayLike,
    candidates: Mapping[str, Prior | AbstractKernel] | None = None,
    *,
    likelihood: Likelihood | None = None,
    num_outputs: int | None = None,
    key: KeyLike,
    **fit_options,
) -> PriorRanking:
    """Fit every candidate by `fit_prior` on the same rows and rank them by log marginal likelihood.

    Args:
        X: as in `fit_prior`.
        y: as in `fit_prior`.
        likelihood: as in `fit_prior`.
        candidates: priors or kernels by name; RBF, Matérn-1/2, 3/2, 5/2 and rational quadratic by default.
        num_outputs: of the priors made from kernels.
        key: the same for all, so that they see the same subsets.
        fit_options: passed on to `fit_prior`, such as `ard=True`.

    Returns the ranking: `.prior` and `.likelihood` are the best ones. Time: that of `fit_prior` for each.

    Examples:
        >>> ranking = fsp.choose_prior(X, y, {"smooth": RBF(), "kinked": Matern12()}, key=jr.key(0), restarts=1)
        >>> ranking.names
        ('smooth', 'kinked')
    """
    chosen = dict(_default_candidates() if candidates is None else candidates)
    if not chosen:
        raise ValueError("choose_prior: candidates is empty; pass at least one kernel, or None for the default five")
    options = {"standard_errors": False, **fit_options}
    fits = {}
    for name, candidate in chosen.items():
        prior = candidate if isinstance(candidate, Prior) else Prior(candidate, num_outputs=num_outputs)
        with warnings.catch_warnings():
            # The table says which parameters ended at a bound.
            warnings.filterwarnings("ignore", message="fit_prior: these parameters ended at a bound")
            fits[name] = fit_prior(prior, X, y, likelihood, key=key, **options)
    order = sorted(fits, key=lambda name: -fits[name].report.value)
    return PriorRanking(tuple(order), tuple(fits[name] for name in order))


def _default_candidates() -> dict[str, AbstractKernel]:
    return {
        "RBF": RBF(),
        "Matern12": Matern12(),
        "Matern32": Matern32(),
        "Matern52": Matern52(),
        "RationalQuadratic": RationalQuadratic(alpha=PositiveReal(1.0)),
    }

"""Ranking candidate kernels by their log evidence."""

import math
import warnings
from collections.abc import Mapping, Sequence

import equinox as eqx
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern32, Matern52, RationalQuadratic
from gpjax.parameters import PositiveReal
from numpy.typing import ArrayLike
from rich.table import Table
from scipy.linalg import solve_triangular

from fsplaplace.arguments import KeyLike, check_numbers, checked
from fsplaplace.host import table_text
from fsplaplace.likelihoods import Likelihood
from fsplaplace.observations import Observation
from fsplaplace.prior import Prior, moments
from fsplaplace.training import settle_under
from fsplaplace.tuning._fit_prior import FittedPrior, fit_prior

# Observations whose exact evidence takes seconds.
_MOST_TARGETS = 3000


class PriorRanking(eqx.Module):
    """Fitted candidates from the highest log marginal likelihood down; prints as a table.

    Attributes:
        names: of the candidates.
        fits: what `fit_prior` found for each.
        log_evidence: of each, of all observations; minus infinity if its functions lack the derivatives that were observed.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    fits: tuple[FittedPrior, ...]
    log_evidence: tuple[float, ...]

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
        for name, fit, value in zip(self.names, self.fits, self.log_evidence, strict=True):
            lost = value - self.log_evidence[0]
            bound = ", ".join(row.name for row in fit.report.rows if row.at_bound)
            table.add_row(name, f"{value:.3f}", f"{lost:.3f}", f"{math.exp(lost):.2g}", bound)
        return table_text(table, width=110)


@checked
def choose_prior(
    X: ArrayLike,
    y: ArrayLike,
    candidates: Mapping[str, Prior | AbstractKernel] | None = None,
    *,
    likelihood: Likelihood | None = None,
    num_outputs: int | None = None,
    also: Sequence[Observation] | None = None,
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
        also: what was observed of the function besides values, through linear operators with Gaussian noise: every candidate is
            fitted to the values and ranked by the exact evidence of all observations.
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
            warnings.filterwarnings(
                "ignore", message="fit_prior: (these parameters ended at a bound|the targets look free of noise)"
            )
            fits[name] = fit_prior(prior, X, y, likelihood, key=key, **options)
    values = {name: fit.report.value if not also else _log_evidence(fit, X, y, also) for name, fit in fits.items()}
    order = sorted(fits, key=lambda name: -values[name])
    return PriorRanking(tuple(order), tuple(fits[name] for name in order), tuple(float(values[name]) for name in order))


def _log_evidence(fit: FittedPrior, X: ArrayLike, y: ArrayLike, also: Sequence[Observation]) -> float:
    """The exact log density of values and other observations together. Time cubic in their number."""
    parts, residuals, noises = [], [], []
    for number, each in enumerate([Observation(X, y, fit.likelihood), *also]):
        where = "y" if number == 0 else f"also[{number - 1}] ({each.of.name})"
        inputs = np.asarray(check_numbers(each.X, where), np.float64)
        targets = each.likelihood.check_targets(each.y, num_rows=len(inputs))
        try:
            operator = settle_under(each.of, fit.prior, inputs)
        except ValueError as error:
            if "infinite variance" in str(error):
                return -math.inf
            raise
        mean = moments.mean_of(fit.prior, operator, inputs)
        noise = each.likelihood.noise(mean.shape)
        if noise is None or not operator.linear:
            raise ValueError(
                f"choose_prior: {where} is not a linear operator with Gaussian noise, so that there is no exact evidence; compare "
                "the log_evidence of laplace(..., also=...) instead"
            )
        parts.append((operator, inputs))
        residuals.append((np.asarray(targets, np.float64).reshape(mean.shape) - mean).ravel())
        noises.append(noise.variance.ravel())
    residual, noise = np.concatenate(residuals), np.concatenate(noises)
    if residual.size > _MOST_TARGETS:
        raise ValueError(
            f"choose_prior: {residual.size} targets are too many for an exact evidence with also; pass at most {_MOST_TARGETS}"
        )
    lower = np.linalg.cholesky(moments.covariance_of(fit.prior, parts) + np.diag(noise))
    whitened = solve_triangular(lower, residual, lower=True)
    return float(-0.5 * whitened @ whitened - np.sum(np.log(np.diag(lower))) - 0.5 * residual.size * np.log(2 * np.pi))


def _default_candidates() -> dict[str, AbstractKernel]:
    return {
        "RBF": RBF(),
        "Matern12": Matern12(),
        "Matern32": Matern32(),
        "Matern52": Matern52(),
        "RationalQuadratic": RationalQuadratic(alpha=PositiveReal(1.0)),
    }

"""Rows held out choose what the exact process cannot judge, and the posterior is that of all rows."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.estimators import weighted
from fsplaplace.laplace import fit_posterior
from fsplaplace.laplace._choices import Options
from fsplaplace.laplace._held_out import Candidate, LabelledRows, judge


def rows(count: int, likelihood=None) -> LabelledRows:
    X = np.linspace(-1.0, 1.0, count)[:, None]
    return LabelledRows(X, np.sin(3 * X), likelihood or fsp.likelihoods.Gaussian(0.1))


def test_rows_are_held_out_only_where_the_exact_process_cannot_see_all():
    generator = np.random.default_rng(0)
    assert rows(2000).parts(generator) is None
    assert rows(3000, fsp.likelihoods.Bernoulli()).parts(generator) is None
    # A scale for each row is known.
    assert rows(3000, fsp.likelihoods.Gaussian(np.full((3000, 1), 0.1))).parts(generator) is None
    for count, held in ((2001, 200), (9000, 500)):
        parts = rows(count).parts(generator)
        assert parts is not None
        assert (len(parts.held.X), len(parts.kept.X)) == (held, count - held)
        assert {*parts.held.X[:, 0], *parts.kept.X[:, 0]} == {*rows(count).X[:, 0]}
        assert len(parts.some.X) == len(parts.kept.X)
    many = rows(12_000).parts(generator)
    assert many is not None
    assert len(many.some.X) == 10_000
    assert {*many.some.X[:, 0]} < {*many.kept.X[:, 0]}


def test_rows_without_weight_never_judge():
    weights = np.ones(4000)
    weights[2500:] = 0.0
    table = rows(4000, weighted(fsp.likelihoods.Gaussian(0.1), weights))
    parts = table.parts(np.random.default_rng(0))
    assert parts is not None
    assert len(parts.held.X) == 250
    assert np.max(parts.held.X) <= table.X[2499]
    assert parts.kept.likelihood.scale.shape == (3750, 1)


@dataclasses.dataclass
class Stub:
    """A posterior that predicts constants."""

    network: float
    refined: float
    variance: float

    def predict(self, x):
        full = lambda value: jnp.full((len(x), 1), value)  # noqa: E731
        return SimpleNamespace(map=full(self.network), mean=full(self.refined), variance=full(self.variance))


def plus_minus(size: float, noise: float) -> LabelledRows:
    """Targets of this size and both signs."""
    return LabelledRows(
        np.zeros((50, 1)), np.where(np.arange(50) % 2, size, -size)[:, None], fsp.likelihoods.Gaussian(noise)
    )


def test_the_candidate_with_the_highest_held_out_density_is_taken():
    held = plus_minus(0.3, 0.1)
    stubs = {False: Stub(0.0, 1.0, 0.0), True: Stub(0.0, 0.0, 4.0)}
    made = lambda missed, _factor: stubs[missed]  # noqa: E731
    # Residuals have standard deviation 0.3 around 0: three times the stated noise without missed variance is right.
    best = judge(made, held, Options(), fit_noise=True).best
    assert best[:2] == ("network", False)
    assert best.noise_factor == pytest.approx(3.0, rel=0.03)
    rows = judge(made, held, Options(), fit_noise=True).held
    np.testing.assert_array_equal(rows.off, held.y)
    np.testing.assert_allclose(rows.noise, 0.09, rtol=0.06)
    # The stated noise is too small by 9 in variance, so that wide missed variance is the lesser evil.
    assert judge(made, held, Options(), fit_noise=False).best == Candidate("network", True, 1.0)
    assert judge(made, held, Options(mean="refined"), fit_noise=True).best.mean == "refined"
    assert not judge(made, held, Options(missed_as_noise=False), fit_noise=True).best.missed_as_noise


def test_noise_is_only_changed_to_one_that_a_posterior_was_made_with():
    """With less noise the variance falls, too: what the first posterior asks for is too little, and the second says so."""
    asked = []

    def shrinking(_missed: bool, factor: float) -> Stub:
        asked.append(factor)
        return Stub(0.0, 0.0, 0.05 * factor**2)

    options = Options(mean="refined", missed_as_noise=False)
    # v + c^2 s^2 = 0.09 at v = 0.05 c^2 and s = 0.4: c = 0.655.
    found = judge(shrinking, plus_minus(0.3, 0.4), options, fit_noise=True).best.noise_factor
    assert asked[0] == 1.0
    assert asked[1] == pytest.approx(0.5, rel=0.03)  # 0.05 + c^2 0.16 = 0.09
    assert found == asked[2] == pytest.approx(0.655, rel=0.08)
    # A posterior that is worse with the noise that was asked for is not taken.
    worse = lambda _missed, factor: Stub(0.0, 0.0 if factor == 1.0 else 9.0, 0.0)  # noqa: E731
    assert judge(worse, plus_minus(0.3, 0.1), options, fit_noise=True).best.noise_factor == 1.0
    assert judge(shrinking, plus_minus(0.3, 0.4), options, fit_noise="upwards").best.noise_factor == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("stated", [0.02, 1.0])
def test_the_noise_follows_the_evidence_in_both_directions(stated):
    """The truth is 0.2: far below or above what is stated, with few rows and with many."""
    generator = np.random.default_rng(0)
    prior, context = fsp.Prior(RBF(lengthscale=0.5)), fsp.context.Uniform(-1.2, 1.2)
    model = fsp.as_model(fsp.mlp([20], prior=prior, context=context, key=jr.key(0)))
    for count in (200, 2200):
        X = generator.uniform(-1, 1, (count, 1)).astype(np.float32)
        y = np.sin(3 * X[:, 0]) + 0.2 * generator.normal(size=count)
        fitted = fit_posterior(
            model, prior, fsp.likelihoods.Gaussian(stated), context, X, y, key=jr.key(1), num_points=60,
            training={"steps": 100, "num_context": 20, "batch_size": min(count, 256), "progress": False},
        )  # fmt: skip
        assert float(fitted.posterior.likelihood.scale) == pytest.approx(0.2, rel=0.15)
        x = np.linspace(-1, 1, 9)[:, None]
        np.testing.assert_allclose(fitted.posterior.predict(x).mean[:, 0], np.sin(3 * x[:, 0]), atol=0.12)


@pytest.mark.slow
def test_no_row_held_out_is_a_context_point():
    """All of them were: the same draw chose both, and the rows that judged were the easiest to predict."""
    X = np.random.default_rng(1).uniform(-1, 1, (2100, 1)).astype(np.float32)
    prior, context = fsp.Prior(RBF(lengthscale=0.5)), fsp.context.Uniform(-1.2, 1.2)
    fitted = fit_posterior(
        fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(0))), prior, fsp.likelihoods.Gaussian(0.2), context,
        X, np.sin(3 * X[:, 0]), key=jr.key(1), num_points=200, fit_noise=False,
        training={"steps": 5, "num_context": 10, "batch_size": 64, "progress": False},
        approximation={"mean": "refined", "missed_as_noise": True},
    )  # fmt: skip
    assert fitted.held is not None
    assert len(fitted.held.X) == 210
    chosen = {*np.asarray(fitted.context_points)[:, 0]}
    assert len(chosen & {*X[:, 0].astype(float)}) >= 200
    assert not chosen & {*fitted.held.X[:, 0].astype(float)}

"""Shifts and units of inputs, targets and prior, and the order of rows, change nothing."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, Linear

import fsplaplace as fsp
from fsplaplace import FSPRegressor, PrecisionWarning

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (100, 1))
Y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=100)
NEW = np.linspace(-1.5, 1.5, 61)[:, None]
EXACT = references.exact_gp(
    references.rbf(X, X, 0.3), references.rbf(NEW, X, 0.3), references.rbf(NEW, NEW, 0.3), Y, np.asarray(0.1)
)


class Change(NamedTuple):
    """x becomes `x_factor` x + `x_shift`, y likewise, and the prior with them."""

    x_factor: float = 1.0
    x_shift: float = 0.0
    y_factor: float = 1.0
    y_shift: float = 0.0


class Fit(NamedTuple):
    """Mean, standard deviation and log evidence in the units of the unchanged problem."""

    mean: np.ndarray
    std: np.ndarray
    log_evidence: float

    def error(self) -> float:
        """The larger of the two root mean squared distances to the exact process."""
        both = (self.mean - EXACT.mean, self.std - EXACT.std)
        return max(float(np.sqrt(np.mean(each**2))) for each in both)


def fit(change: Change, *, steps: int, own_network: bool = False) -> Fit:
    x, new = (values * change.x_factor + change.x_shift for values in (X, NEW))
    y = Y * change.y_factor + change.y_shift
    kernel = RBF(lengthscale=0.3 * change.x_factor, variance=change.y_factor**2)
    prior, context = fsp.Prior(kernel, mean=change.y_shift), fsp.context.around(x)
    likelihood = fsp.likelihoods.Gaussian(0.1 * change.y_factor)
    if own_network:
        units = {"centre": x.mean(axis=0), "scale": x.std(axis=0)}
        network = eqx.nn.MLP(1, 1, 50, 2, activation=jnp.tanh, key=jr.key(1))
        network = fsp.match_first_layer(network, prior=prior, context=context, key=jr.key(1), **units)
        model = fsp.as_model(network, **units, mean=prior.mean, output_scale=change.y_factor)
    else:
        model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1)))
    if steps:
        trained = fsp.train(model, prior, likelihood, context, x, y, key=jr.key(2), steps=steps, progress=False)
        model = trained.model
    posterior = fsp.laplace(model, prior, likelihood, x, y)
    found = posterior.predict(new)
    return Fit(
        (np.asarray(found.mean, float)[:, 0] - change.y_shift) / change.y_factor,
        np.asarray(found.std, float)[:, 0] / change.y_factor,
        float(posterior.log_evidence) + 100 * np.log(change.y_factor),
    )


@pytest.fixture(scope="module")
def unchanged():
    """The fits of the problem as it is, by the number of steps."""
    return {steps: fit(Change(), steps=steps) for steps in (0, 500)}


UNITS = {
    "y + 10": Change(y_shift=10.0),
    "10 y": Change(y_factor=10.0),
    "y / 10": Change(y_factor=0.1),
    "y / 1e6": Change(y_factor=1e-6),
    "1000 x": Change(x_factor=1000.0),
    "x / 1000": Change(x_factor=1e-3),
    "5 x, 20 y - 100": Change(x_factor=5.0, y_factor=20.0, y_shift=-100.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 500])
@pytest.mark.parametrize("name", UNITS)
def test_units_and_the_prior_mean_do_not_change_the_posterior(name, steps, unchanged):
    found = fit(UNITS[name], steps=steps)
    np.testing.assert_allclose(found.mean, unchanged[steps].mean, atol=1e-3)
    np.testing.assert_allclose(found.std, unchanged[steps].std, atol=1e-3)
    assert found.log_evidence == pytest.approx(unchanged[steps].log_evidence, abs=0.1)


@pytest.mark.parametrize("steps", [0, 500])
@pytest.mark.parametrize("shift", [300.0, 1000.0, -2000.0])
def test_inputs_far_from_zero_give_the_exact_process_as_well(shift, steps):
    """Rounding of the inputs decides between context points as far from each other: another network, as good."""
    found = fit(Change(x_shift=shift), steps=steps)
    assert found.error() < 2e-3
    assert found.log_evidence == pytest.approx(EXACT.log_evidence, abs=0.1)


FAR = {
    "1e6": Change(x_shift=1e6),
    "1e6 ranges": Change(x_factor=0.5, x_shift=1e6),
    "-2e5, y + 10": Change(x_shift=-2e5, y_shift=10.0),
    "3e4, thousands": Change(x_factor=1000.0, x_shift=3e7),
}


@pytest.mark.slow
@pytest.mark.parametrize("own_network", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_inputs_up_to_a_million_ranges_from_zero_are_centred_in_float64(name, own_network):
    """In float32 itself these inputs are up to a sixteenth of the range apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        found = fit(FAR[name], steps=200, own_network=own_network)
    assert found.error() < 1e-3
    assert found.log_evidence == pytest.approx(EXACT.log_evidence, abs=0.1)


class TestFarInputs:
    """What else a posterior of inputs far from zero is asked."""

    shift = 1e6

    @pytest.fixture(scope="class")
    def fitted(self):
        x = X + self.shift
        mean = fsp.means.Linear([2.0], -2.0 * self.shift)
        prior, context = fsp.Prior(RBF(lengthscale=0.3), mean=mean), fsp.context.around(x)
        network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1))
        posterior = fsp.laplace(fsp.as_model(network), prior, fsp.likelihoods.Gaussian(0.1), x, Y + 2 * X[:, 0])
        return network, posterior

    def test_a_linear_mean_is_moved_with_all_its_digits(self, fitted):
        found = fitted[1].predict(NEW + self.shift)
        fit = Fit(np.asarray(found.mean[:, 0]) - 2 * NEW[:, 0], np.asarray(found.std[:, 0]), 0.0)
        assert fit.error() < 3e-3

    def test_batches_are_centred_as_arrays_are(self, fitted):
        network, whole = fitted
        x, y = X + self.shift, Y + 2 * X[:, 0]
        batches = [(x[:50], y[:50]), (x[50:], y[50:])]
        parts = fsp.laplace(fsp.as_model(network), fsp.Prior(RBF(lengthscale=0.3), mean=lambda x: 2 * (x - self.shift)),
                            whole.likelihood, batches)  # fmt: skip
        assert float(parts.log_evidence) == pytest.approx(float(whole.log_evidence), abs=1.0)

    def test_it_is_saved_and_loaded(self, fitted, tmp_path):
        network, posterior = fitted
        fsp.save(tmp_path / "far.safetensors", posterior)
        again = fsp.load(tmp_path / "far.safetensors", network)
        x = NEW + self.shift
        np.testing.assert_array_equal(again.predict(x).mean, posterior.predict(x).mean)

    def test_more_data_are_taken_as_before(self, fitted):
        posterior = fitted[1]
        later = posterior.condition(NEW[:5] + self.shift, np.asarray(posterior.predict(NEW[:5] + self.shift).mean))
        assert np.all(np.asarray(later.predict(NEW[:5] + self.shift).std) < posterior.predict(NEW[:5] + self.shift).std)

    def test_operators_that_follow_a_shift_see_the_same(self, fitted):
        """Slopes observed and averages predicted a million away are those at zero."""
        posterior, found = fitted[1], []
        average = fsp.operators.average(lambda x: x - 0.1, lambda x: x + 0.1)
        for shift in (0.0, self.shift):
            prior, context = fsp.Prior(RBF(lengthscale=0.3)), fsp.context.around(X + shift)
            model = fsp.as_model(fsp.mlp([30], prior=prior, context=context, key=jr.key(1)))
            slopes = fsp.Observation(
                NEW[:9] + shift, NEW[:9, 0], fsp.likelihoods.Gaussian(0.1), of=fsp.operators.partial(0)
            )
            trained = fsp.train(
                model,
                prior,
                posterior.likelihood,
                context,
                X + shift,
                Y,
                also=[slopes],
                key=jr.key(0),
                steps=2,
                progress=False,
            )
            each = fsp.laplace(trained.model, prior, posterior.likelihood, X + shift, Y, also=[slopes], mean="refined")
            found.append(each.predict(NEW[:9] + shift, of=average))
        np.testing.assert_allclose(found[1].mean, found[0].mean, atol=2e-3)
        np.testing.assert_allclose(found[1].std, found[0].std, atol=2e-3)

    def test_what_cannot_be_centred_is_refused(self, fitted, tmp_path):
        posterior, fixed = fitted[1], fsp.operators.integral(self.shift, self.shift + 1)
        with pytest.raises(ValueError, match=r"integral depends on where x is, .*inputs minus .*; subtract that"):
            posterior.predict(NEW + self.shift, of=fixed)
        with pytest.raises(ValueError, match="export: the inputs lie so far from zero"):
            fsp.export(posterior, tmp_path / "program")
        total = fsp.Observation(NEW[:1] + self.shift, NEW[:1, 0], fsp.likelihoods.Gaussian(0.1), of=fixed)
        with pytest.raises(ValueError, match="depends on where x is"):
            fsp.laplace(posterior.model, posterior.prior, posterior.likelihood, X + self.shift, Y, also=[total])

    @pytest.mark.parametrize("kind", ["a kernel that moves", "a network that does not centre", "rounded rows"])
    def test_without_a_way_to_centre_it_is_said(self, kind):
        x = X + self.shift
        prior = fsp.Prior(Linear(variance=1e-12) if kind == "a kernel that moves" else RBF(lengthscale=0.3))
        network = fsp.mlp([5], prior=fsp.Prior(RBF()), context=fsp.context.around(x), key=jr.key(1))
        if kind == "a network that does not centre":
            network = eqx.nn.MLP(1, 1, 5, 1, key=jr.key(0))
        rows = x.astype(np.float32) if kind == "rounded rows" else x
        with pytest.warns(PrecisionWarning, match="X: column 0"):
            fsp.train(fsp.as_model(network), prior, fsp.likelihoods.Gaussian(0.1), fsp.context.around(x), rows, Y,
                      key=jr.key(0), steps=1, progress=False)  # fmt: skip

    def test_targets_that_are_rounded_are_named(self):
        prior, context = fsp.Prior(RBF(lengthscale=0.3), mean=1e6), fsp.context.around(X)
        model = fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(1)))
        with pytest.warns(PrecisionWarning, match="y: column 0 .* subtract a number from y and from the prior's mean"):
            posterior = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(0.1), X, Y + 1e6)
        assert posterior.verdict.level != "good"


def test_long_training_under_a_prior_mean_keeps_the_features():
    found = fit(Change(y_shift=10.0), steps=2000)
    assert found.error() < 1e-3
    assert found.log_evidence == pytest.approx(EXACT.log_evidence, abs=0.1)


@pytest.mark.parametrize("change", [Change(), Change(x_shift=300.0, y_factor=50.0, y_shift=1000.0)])
def test_a_network_of_ones_own_is_as_invariant_with_centre_scale_and_mean(change):
    assert fit(change, steps=500, own_network=True).error() < 3e-3


@pytest.mark.slow
def test_the_estimator_standardises_in_float64():
    near = FSPRegressor(network=(20, 20), steps=50, num_context=50, random_state=0, progress=False).fit(X, Y)
    far = FSPRegressor(network=(20, 20), steps=50, num_context=50, random_state=0, progress=False).fit(X + 2e6, Y)
    for one, other in zip(near.predict(NEW, return_std=True), far.predict(NEW + 2e6, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


class TestPrecisionWarning:
    def problem(self, shift):
        prior, context = fsp.Prior(RBF(lengthscale=0.3)), fsp.context.around(X)
        model = fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(0)))
        return model, prior, fsp.likelihoods.Gaussian(0.1), context, np.concatenate([X, X + shift], axis=1)[:, 1:]

    def test_rounded_inputs_are_named_with_what_to_do(self):
        model, prior, likelihood, context, x = self.problem(1e8)
        message = r"X: column 0 goes from 99999999.* are 8 apart there .*subtract a centre.*FSPRegressor.*float64"
        with pytest.warns(PrecisionWarning, match=message):
            fsp.train(model, prior, likelihood, context, x, Y, key=jr.key(0), steps=1, progress=False)
        for data in ((x, Y), ([(x[:50], Y[:50]), (x[50:], Y[50:])],)):
            with pytest.warns(PrecisionWarning, match=message):
                fsp.laplace(model, prior, likelihood, *data, context_points=context.sample(20, key=jr.key(0)))

    def test_the_column_at_fault_is_named(self):
        table = np.concatenate([X, 1e9 + X], axis=1)
        with pytest.warns(PrecisionWarning, match="rows: column 1"):
            fsp.networks.warn_if_coarse(table, np.float32, argument="rows")

    @pytest.mark.parametrize("values", [X + 1000, np.full((3, 1), 1e9), np.arange(50.0)[:, None] + 1950, X * 1e9])
    def test_what_float32_holds_is_not_mentioned(self, values):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fsp.networks.warn_if_coarse(values, np.float32)

    def test_float64_holds_more(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fsp.networks.warn_if_coarse(X + 1e9, np.float64)


def loader(x, y, *, shuffle=True):
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.tensor(np.asarray(x, np.float32)), torch.tensor(y))
    generator = torch.Generator().manual_seed(0)
    return torch.utils.data.DataLoader(tensors, batch_size=16, shuffle=shuffle, generator=generator)


def untrained(prior, x):
    return fsp.as_model(fsp.mlp([50, 50], prior=prior, context=fsp.context.around(x), key=jr.key(1)))


@pytest.mark.parametrize("n", [100, 700])
def test_a_loader_that_shuffles_gives_the_posterior_of_the_arrays(n):
    generator = np.random.default_rng(1)
    x = X if n == 100 else generator.uniform(-1, 1, (n, 1))
    y = Y if n == 100 else np.sin(6 * x[:, 0]) + 0.1 * generator.normal(size=n)
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1)
    points, model = fsp.context.around(x).sample(100, key=jr.key(3)), untrained(prior, x)
    shuffled = fsp.laplace(model, prior, likelihood, loader(x, y), context_points=points)
    K = references.rbf(x, x, 0.3)
    exact = references.exact_gp(K, references.rbf(NEW, x, 0.3), references.rbf(NEW, NEW, 0.3), y, np.asarray(0.1))
    assert float(shuffled.log_evidence) == pytest.approx(exact.log_evidence, abs=0.2)
    inside = np.abs(NEW[:, 0]) < 1
    np.testing.assert_allclose(shuffled.predict(NEW[inside]).mean[:, 0], exact.mean[inside], atol=5e-3)


@pytest.mark.parametrize("n", [100, 700])
def test_labels_of_a_loader_that_shuffles_stay_with_their_inputs(n):
    x = np.random.default_rng(1).uniform(-1, 1, (n, 1))
    labels = (np.sin(6 * x[:, 0]) > 0).astype(np.float32)
    prior = fsp.Prior(RBF(lengthscale=0.3, variance=9.0))
    posterior = fsp.laplace(untrained(prior, x), prior, fsp.likelihoods.Bernoulli(), loader(x, labels))
    found = np.asarray(posterior.predict(x).mean)[:, 0] > 0
    assert np.mean(found == labels) >= 0.97


@pytest.mark.parametrize("n", [100, 700])
def test_one_scale_per_row_needs_batches_in_one_order(n):
    x = np.random.default_rng(1).uniform(-1, 1, (n, 1))
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(np.full((n, 1), 0.1))
    model, points = untrained(prior, x), x[:50]
    with pytest.raises(ValueError, match=r"batch 0 has other rows than in the first pass.*shuffle=False"):
        fsp.laplace(model, prior, likelihood, loader(x, x[:, 0]), context_points=points)
    ordered = fsp.laplace(model, prior, likelihood, loader(x, x[:, 0], shuffle=False), context_points=points)
    whole = fsp.laplace(model, prior, likelihood, x, x[:, 0], context_points=points)
    assert float(ordered.log_evidence) == pytest.approx(float(whole.log_evidence), abs=0.05)


@pytest.mark.parametrize("context", [np.zeros((5, 1)), [[0.0]], jnp.zeros((5, 1))])
def test_points_where_a_sampler_is_wanted_are_named(context):
    prior = fsp.Prior(RBF())
    sentence = r"{}: context is an array of shape \(., 1\); pass a sampler: fsplaplace.context.Data\(points\)"
    with pytest.raises(TypeError, match=sentence.format("mlp")):
        fsp.mlp([5], prior=prior, context=context, key=jr.key(0))
    likelihood = fsp.likelihoods.Gaussian(0.1)
    with pytest.raises(TypeError, match=sentence.format("train")):
        fsp.train(untrained(prior, X), prior, likelihood, context, X, Y, key=jr.key(0), steps=1, progress=False)


@pytest.mark.parametrize(("key", "seen"), [("0", r"'0'; .* jax.random.key\(0\)"), (np.zeros(3), "shape \\(3,\\)")])
def test_what_is_no_key_is_named(key, seen):
    prior, context, likelihood = fsp.Prior(RBF()), fsp.context.around(X), fsp.likelihoods.Gaussian(0.1)
    model = untrained(prior, X)
    calls = [
        lambda: fsp.mlp([5], prior=prior, context=context, key=key),
        lambda: fsp.train(model, prior, likelihood, context, X, Y, key=key, steps=1, progress=False),
        lambda: fsp.laplace(model, prior, likelihood, X, Y, key=key),
        lambda: context.sample(5, key=key),
        lambda: fsp.context.Uniform(0, 1).sample(5, key=key),
        lambda: fsp.context.Halton(0, 1).sample(5, key=key),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=f"key is .*{seen}"):
            call()

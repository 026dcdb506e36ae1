"""Figures: what is drawn, not only that something is."""

import subprocess
import sys
from types import SimpleNamespace

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

import fsplaplace as fsp
from fsplaplace import plotting

VERMILLION, GREEN = "#d55e00", "#009e73"


def float64(values):
    with jax.enable_x64(True):
        return jnp.asarray(values, jnp.float64)


class Stub:
    """A posterior whose moments are known: mean sin(sum of inputs) for every output, std 0.5 + x_1^2 / 10."""

    def __init__(self, width=1, outputs=1, likelihood=None):
        self.context_points = np.random.default_rng(0).uniform(-2, 3, (20, width))
        self.context_points[0], self.context_points[1] = -2, 3
        self.outputs = outputs
        self.likelihood = likelihood or fsp.likelihoods.Gaussian(0.1)
        self.prior = fsp.Prior(gpk.RBF(), mean=0.5, num_outputs=outputs)
        self.model = SimpleNamespace(dtype=jnp.float32)

    def predict(self, x):
        mean = np.repeat(np.sin(np.sum(x, axis=1, keepdims=True)), self.outputs, axis=1)
        variance = (0.5 + np.repeat(x[:, :1], self.outputs, axis=1) ** 2 / 10) ** 2
        return fsp.Prediction(float64(mean), float64(mean), float64(variance), None)

    def sample(self, x, *, key, num_samples=1):
        shift = np.linspace(-1, 1, num_samples)[:, None, None]
        return np.asarray(self.predict(x).mean)[None] + shift


@pytest.fixture
def data():
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (12, 1))
    return X, np.sin(X[:, 0]) + 3.0


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_regression_draws_mean_band_samples_and_data(data):
    ax = plotting.plot_regression(Stub(), *data, num_samples=4)
    drawn = lines(ax)
    assert legend(ax) == ["mean ± 2 std", "mean", "samples", "data"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "f(x)")
    assert len(ax.get_lines()) == 1 + 4 + 1
    assert ax.get_xlim() == (-2, 3)
    x, mean = drawn["mean"].get_data()
    np.testing.assert_allclose(mean, np.sin(x))
    np.testing.assert_allclose(drawn["data"].get_xydata(), np.c_[data[0][:, 0], data[1]])
    assert drawn["data"].get_marker() == "o"
    assert to_hex(drawn["mean"].get_color()) == VERMILLION
    assert to_hex(drawn["samples"].get_color()) == GREEN
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert to_hex(band.get_facecolor()[0]) == GREEN
    grid = np.linspace(-2, 3, 300)
    np.testing.assert_allclose(corners[:, 1].max(), np.max(np.sin(grid) + 2 * (0.5 + grid**2 / 10)), rtol=1e-6)
    np.testing.assert_allclose(corners[:, 1].min(), np.min(np.sin(grid) - 2 * (0.5 + grid**2 / 10)), rtol=1e-6)


def test_regression_draws_on_the_given_axes_at_the_given_points_with_a_reference(data):
    ax = Figure().subplots()
    x = np.linspace(0, 1, 5)[:, None]
    reference = np.cos(x[:, 0]), np.full(5, 0.25)
    assert plotting.plot_regression(Stub(), *data, x=x, num_samples=0, reference=reference, ax=ax) is ax
    drawn = lines(ax)
    assert "samples" not in drawn
    assert drawn["reference ± 2 std"].get_linestyle() == "--"
    np.testing.assert_allclose(drawn["reference ± 2 std"].get_ydata(), reference[0])
    edges = [line.get_ydata() for line in ax.get_lines() if line.get_linestyle() == ":"]
    np.testing.assert_allclose(edges, [reference[0] - 0.5, reference[0] + 0.5])
    same = plotting.plot_regression(Stub(), *data, x=x, reference=Stub())
    np.testing.assert_allclose(lines(same)["reference ± 2 std"].get_ydata(), np.sin(x[:, 0]))


def test_regression_draws_the_chosen_output(data):
    X, y = data
    ax = plotting.plot_regression(Stub(outputs=2), X, np.c_[y, y + 10], output=1)
    np.testing.assert_allclose(lines(ax)["data"].get_ydata(), y + 10)


def test_regression_of_two_inputs_is_refused(data):
    with pytest.raises(ValueError, match=r"draws functions of 1 input, but the inputs have shape \(20, 2\)"):
        plotting.plot_regression(Stub(width=2), *data)


def test_prior_and_posterior_share_their_scale(data):
    left, right = plotting.plot_prior_and_posterior(Stub(), *data, num_samples=3)
    assert (left.get_title(), right.get_title()) == ("prior", "posterior")
    assert left.get_ylim() == right.get_ylim()
    np.testing.assert_allclose(lines(left)["mean"].get_ydata(), 0.5)
    assert "data" not in lines(left)
    assert len(left.get_lines()) == 1 + 3
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [-1.5, 2.5], rtol=1e-5)
    with pytest.raises(ValueError, match="ax holds 1 axes, but 2 are drawn"):
        plotting.plot_prior_and_posterior(Stub(), *data, ax=[left])


@pytest.mark.parametrize(
    ("likelihood", "outputs"), [(fsp.likelihoods.Bernoulli(), 1), (fsp.likelihoods.Categorical(3), 3)]
)
def test_classification_draws_mean_and_std_of_the_probability(likelihood, outputs):
    X = np.random.default_rng(2).uniform(-1, 1, (9, 2))
    y = np.arange(9) % 2
    stub = Stub(width=2, outputs=outputs, likelihood=likelihood)
    mean, std = plotting.plot_classification(stub, X, y, resolution=7, num_samples=11)
    assert (mean.get_title(), std.get_title()) == ("mean", "standard deviation")
    assert (mean.get_xlabel(), mean.get_ylabel()) == ("x₁", "x₂")
    assert legend(mean) == ["y = 0", "y = 1"]
    labels = {axes.get_ylabel() for axes in mean.figure.axes}
    assert {"mean of P(y = 1)", "standard deviation of P(y = 1)"} <= labels
    for ax, summary in ((mean, np.mean), (std, np.std)):
        assert ax.get_xlim() == (-2, 3)
        mesh = next(c for c in ax.collections if type(c).__name__ == "QuadMesh")
        grid = np.stack(np.meshgrid(np.linspace(-2, 3, 7), np.linspace(-2, 3, 7)), axis=-1).reshape(-1, 2)
        logits = stub.sample(grid, key=None, num_samples=11)
        exponentials = np.exp(logits)
        if outputs == 1:
            probabilities = exponentials[..., 0] / (1 + exponentials[..., 0])
        else:
            probabilities = exponentials[..., 1] / exponentials.sum(axis=-1)
        np.testing.assert_allclose(mesh.get_array().reshape(-1), summary(probabilities, axis=0), atol=1e-6)
        points = np.concatenate([c.get_offsets() for c in ax.collections if type(c).__name__ == "PathCollection"])
        assert {tuple(p) for p in points.round(6)} == {tuple(p) for p in X.round(6)}


def test_classification_needs_classes(data):
    with pytest.raises(ValueError, match="Gaussian has no classes"):
        plotting.plot_classification(Stub(width=2), *data)


def test_calibration_of_exact_quantiles_is_the_diagonal():
    y = scipy.stats.norm.ppf((np.arange(1000) + 0.5) / 1000)
    ax = plotting.plot_calibration(3 + 2 * y, np.full(1000, 3.0), np.full(1000, 2.0), num_levels=9)
    drawn = lines(ax)
    levels, observed = drawn["observed (n = 1000)"].get_data()
    np.testing.assert_allclose(levels, np.arange(1, 10) / 10)
    np.testing.assert_allclose(observed, levels, atol=1e-3)
    np.testing.assert_allclose(drawn["perfect"].get_xydata(), [[0, 0], [1, 1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("quantile level", "share of targets below")
    too_narrow = plotting.plot_calibration(3 + 2 * y, np.full(1000, 3.0), np.full(1000, 1.0), num_levels=9)
    observed = lines(too_narrow)["observed (n = 1000)"].get_ydata()
    assert observed[0] > 0.2
    assert observed[-1] < 0.8
    with pytest.raises(ValueError, match=r"\[3, 2, 3\] values"):
        plotting.plot_calibration(np.zeros(3), np.zeros(2), np.ones(3))


def test_reliability_draws_accuracy_in_bins_of_confidence():
    confidence = np.repeat([0.65, 0.95], [20, 60])
    labels = np.concatenate([np.arange(20) < 10, np.arange(60) < 54]).astype(int)
    ax = plotting.plot_reliability(labels, np.c_[1 - confidence, confidence], num_bins=10)
    error = (20 * 0.15 + 60 * 0.05) / 80
    drawn = lines(ax)[f"accuracy (ECE {error:.3f})"]
    np.testing.assert_allclose(drawn.get_xydata(), [[0.65, 0.5], [0.95, 0.9]], atol=1e-9)
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [0] * 6 + [0.25, 0, 0, 0.75])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim(), ax.get_ylim()) == (
        "confidence",
        "accuracy",
        (0, 1),
        (0, 1),
    )


def test_history_draws_both_terms_their_sum_and_the_held_out_loss(x64):
    steps = jnp.arange(1200.0)
    history = fsp.History(1000 - steps, steps / 10, jnp.array([100, 200]), jnp.array([2.0, 1.0]))
    ax = plotting.plot_history(history)
    assert legend(ax) == ["objective", "negative log-likelihood", "half squared norm", "held-out (right)"]
    drawn = lines(ax)
    x, objective = drawn["objective"].get_data()
    assert len(x) == 400
    np.testing.assert_allclose(objective, 1000 - 0.9 * x)
    assert ax.get_yscale() == "symlog"
    assert ax.get_xlabel() == "step"
    (right,) = [axes for axes in ax.figure.axes if axes is not ax]
    np.testing.assert_allclose(right.get_lines()[0].get_xydata(), [[100, 2], [200, 1]])
    without = fsp.History(1000 - steps[:3], steps[:3], jnp.zeros(0, int), jnp.zeros(0))
    assert len(plotting.plot_history(without).figure.axes) == 1


def test_vector_field_draws_arrows_over_their_uncertainty():
    X = np.random.default_rng(3).uniform(-1, 1, (6, 2))
    y = np.c_[-X[:, 1], X[:, 0]]
    ax = plotting.plot_vector_field(Stub(width=2, outputs=2), X, y, resolution=5)
    mean, observed = [c for c in ax.collections if isinstance(c, Quiver)]
    assert mean.N == 25
    np.testing.assert_allclose(mean.U, np.sin(mean.X + mean.Y), atol=1e-6)
    np.testing.assert_allclose(np.c_[observed.X, observed.Y, observed.U, observed.V], np.c_[X, y])
    assert mean.scale == observed.scale
    mesh = next(c for c in ax.collections if type(c).__name__ == "QuadMesh")
    first = np.linspace(-2, 3, 13)
    np.testing.assert_allclose(mesh.get_array()[0], np.sqrt(2) * (0.5 + first**2 / 10), rtol=1e-6)
    assert legend(ax) == ["mean", "data"]
    assert "standard deviation" in {axes.get_ylabel() for axes in ax.figure.axes}
    assert (ax.get_xlim(), ax.get_ylim()) == ((-2, 3), (-2, 3))
    with pytest.raises(ValueError, match=r"y has shape \(6,\); pass vectors as \(n, 2\)"):
        plotting.plot_vector_field(Stub(width=2, outputs=2), X, y[:, 0])


def test_plotting_changes_no_global_state():
    code = """
import io, sys
from fsplaplace import plotting
assert "matplotlib" not in sys.modules
import matplotlib, numpy as np
before = dict(matplotlib.rcParams)
plotting.plot_calibration(np.zeros(4), np.zeros(4), np.ones(4)).figure.savefig(io.BytesIO())
assert dict(matplotlib.rcParams) == before
assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Waves(Stub):
    """A posterior of sin(sum of inputs) that knows operators, with standard deviation 0.1 of whatever is asked for."""

    def predict(self, x, *, of=None):
        seen = (of or fsp.operators.value)(lambda point: jnp.sin(jnp.sum(point)) * jnp.ones(self.outputs))
        mean = np.asarray(jax.vmap(seen)(jnp.asarray(x)))
        return fsp.Prediction(float64(mean), float64(mean), float64(np.full(mean.shape, 0.01)), None)

    def sample(self, x, *, key, num_samples=1, of=None):
        return np.repeat(np.asarray(self.predict(x, of=of).mean)[None], num_samples, axis=0)


def test_function_and_derivative_are_drawn_side_by_side(data):
    slopes = data[0], np.cos(data[0][:, 0])
    left, right = plotting.plot_derivative(Waves(), *data, observed=slopes, num_samples=2)
    for ax, wave in ((left, np.sin), (right, np.cos)):
        x, mean = lines(ax)["mean"].get_data()
        np.testing.assert_allclose(mean, wave(x), atol=1e-6)
        np.testing.assert_allclose(lines(ax)["samples"].get_ydata(), wave(x), atol=1e-6)
    np.testing.assert_allclose(lines(left)["data"].get_ydata(), data[1])
    np.testing.assert_allclose(lines(right)["data"].get_ydata(), slopes[1])
    assert (left.get_ylabel(), right.get_ylabel()) == ("f(x)", "f'(x)")
    _, bend = plotting.plot_derivative(Waves(), of=fsp.operators.partial(0, 0), num_samples=0)
    np.testing.assert_allclose(lines(bend)["mean"].get_ydata(), -np.sin(lines(bend)["mean"].get_xdata()), atol=1e-6)
    assert "data" not in lines(bend)
    assert "partial(0, 0)" in bend.get_ylabel()
    with pytest.raises(ValueError, match="X and y belong together"):
        plotting.plot_derivative(Waves(), data[0])


def test_a_field_is_drawn_with_its_divergence():
    X = np.random.default_rng(3).uniform(-1, 1, (6, 2))
    left, right = plotting.plot_divergence(Waves(width=2, outputs=2), X, X, resolution=5)
    assert any(isinstance(each, Quiver) for each in left.collections)
    (mesh,) = right.collections
    first = np.linspace(-2, 3, 13)
    sums = first[:, None] + first
    np.testing.assert_allclose(mesh.get_array(), 2 * np.cos(sums), atol=1e-5)
    assert -mesh.norm.vmin == mesh.norm.vmax == pytest.approx(2 * np.abs(np.cos(sums)).max(), rel=1e-5)
    # Dots where 2 cos is within two standard deviations, 0.2, of zero.
    (dots,) = right.get_lines()
    assert dots.get_xydata().shape[0] == np.sum(np.abs(2 * np.cos(sums[::3, ::3])) <= 0.2)
    np.testing.assert_array_less(np.abs(2 * np.cos(dots.get_xydata().sum(axis=1))), 0.2)
    assert "divergence, mean" in {axes.get_ylabel() for axes in right.figure.axes}
    with pytest.raises(ValueError, match=r"gradient has 4 values for each place; pass an operator with one"):
        plotting.plot_divergence(Waves(width=2, outputs=2), X, X, of=fsp.operators.gradient)

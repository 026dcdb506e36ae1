"""More data and less data without a new fit: equal to the fits that they stand for."""

import copy
import pickle
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, Matern32

import fsplaplace as fsp
from fsplaplace.likelihoods import Bernoulli, Gaussian, Poisson

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(14, 2))
Y = np.column_stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2]) + 0.1 * GENERATOR.normal(size=(14, 2))
TEST = GENERATOR.uniform(-1.2, 1.2, size=(7, 2))
POINTS = np.concatenate([X, np.asarray(fsp.context.Halton([-1, -1], [1, 1]).sample(30, key=jr.key(0)))])
GUARDS = GENERATOR.uniform(-1, 1, size=(20, 2))
NOISE = np.array([0.1, 0.3])


def fit(rows, likelihood=None, *, kernel=None, width=30, targets=Y, **options):
    """The same features whatever the rows: context points, ridge and cut are given."""
    prior = fsp.Prior(kernel or RBF(lengthscale=0.7), mean=[0.3, -0.2], num_outputs=2)
    box = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
    model = fsp.as_model(fsp.mlp([width], prior=prior, context=box, key=jr.key(0)))
    given = {"mean": "refined", "delta": 1e-8, "rtol": 1e-7, "missed_as_noise": False, **options}
    return fsp.laplace(
        model, prior, likelihood or Gaussian(NOISE), X[rows], targets[rows],
        context_points=POINTS, guard_points=GUARDS, include_training=False, **given,
    )  # fmt: skip


def assert_equal(got, want, *, atol, evidence=True):
    one, other = got.predict(TEST), want.predict(TEST)
    np.testing.assert_allclose(one.mean, other.mean, atol=atol)
    np.testing.assert_allclose(one.variance, other.variance, atol=atol)
    np.testing.assert_allclose(got.covariance(TEST), want.covariance(TEST), atol=atol)
    if evidence:
        np.testing.assert_allclose(got.log_evidence, want.log_evidence, rtol=atol, atol=100 * atol)


# A network that holds its prior, one too small for it with both treatments of what it misses.
CASES = {
    "held": {},
    "missed as noise": {"kernel": Matern32(lengthscale=0.2), "width": 12, "missed_as_noise": True},
    "missed as function": {"kernel": Matern32(lengthscale=0.2), "width": 12},
}


class Pair(NamedTuple):
    """A posterior of half of the data, one of all, and how they were fitted."""

    half: fsp.Posterior
    whole: fsp.Posterior
    options: dict


@pytest.fixture(scope="module", params=CASES)
def pair(request) -> Pair:
    options = CASES[request.param]
    with jax.enable_x64(True):
        return Pair(fit(slice(0, 8), **options), fit(slice(None), **options), options)


@pytest.fixture(scope="module")
def half():
    with jax.enable_x64(True):
        return fit(slice(0, 8))


@pytest.mark.slow
def test_conditioning_equals_a_fit_to_all_data(x64, pair):
    half, whole, _ = pair
    later = half.condition(X[8:], Y[8:])
    assert_equal(later, whole, atol=1e-9)
    root, turn = np.sqrt(later.information), np.asarray(later.later.turn)
    information = np.linalg.eigvalsh(root[:, None] * np.linalg.inv(turn @ turn.T) * root)
    np.testing.assert_allclose(information, np.sort(whole.information), rtol=1e-8)
    assert later.rank == half.rank
    assert "Conditioned since on 6 rows" in str(later)


@pytest.mark.slow
def test_conditioning_in_float32_equals_a_fit_to_all_data():
    model = fit(slice(0, 8))
    assert model.scale.dtype == jnp.float32
    assert_equal(model.condition(X[8:], Y[8:]), fit(slice(None)), atol=1e-5)


def test_a_row_at_a_time_loses_nothing(x64, half):
    """100 rows one after the other against all at once."""
    rows = np.random.default_rng(1).uniform(-1, 1, size=(100, 2))
    targets = np.column_stack([np.sin(3 * rows[:, 0]), rows[:, 1] ** 2])
    later = half
    for row, target in zip(rows, targets, strict=True):
        later = later.condition(row[None], target[None])
    assert_equal(later, half.condition(rows, targets), atol=1e-8)
    assert int(later.later.num_rows) == 100


def test_the_order_of_data_does_not_matter(x64, half):
    one = half.condition(X[8:10], Y[8:10]).condition(X[10:], Y[10:])
    assert_equal(one, half.condition(X[10:], Y[10:]).condition(X[8:10], Y[8:10]), atol=1e-10)


def test_new_rows_may_have_noise_of_their_own(x64, half):
    scale = np.random.default_rng(2).uniform(0.05, 0.5, size=(6, 2))
    whole = fit(slice(None), Gaussian(np.concatenate([np.tile(NOISE, (8, 1)), scale])))
    assert_equal(half.condition(X[8:], Y[8:], Gaussian(scale)), whole, atol=1e-9)


@pytest.mark.slow
def test_under_jit_and_vmap_it_is_the_same(x64, half):
    later = half.condition(X[8:], Y[8:])
    compiled = eqx.filter_jit(lambda posterior, x, y: posterior.condition(x, y))(
        half, jnp.asarray(X[8:]), jnp.asarray(Y[8:])
    )
    assert_equal(compiled, later, atol=1e-10)
    sets = (
        jnp.stack([jnp.asarray(X[8:11]), jnp.asarray(X[11:])]),
        jnp.stack([jnp.asarray(Y[8:11]), jnp.asarray(Y[11:])]),
    )
    means = eqx.filter_vmap(lambda x, y: half.condition(x, y).predict(TEST).mean)(*sets)
    for mean, rows in zip(means, (slice(8, 11), slice(11, None)), strict=True):
        np.testing.assert_allclose(mean, half.condition(X[rows], Y[rows]).predict(TEST).mean, atol=1e-10)


def test_methods_are_pytrees_with_their_own_documentation(x64, half):
    """As those of every Equinox module, so that one program serves the methods of all posteriors of the same shapes."""
    assert half.predict.__name__ == "predict"
    assert half.predict.__doc__ == type(half).predict.__doc__
    assert len(jax.tree.leaves(half.predict)) == len(jax.tree.leaves(half))
    found = jax.jit(lambda predict, x: predict(x).mean)(half.predict, TEST)
    np.testing.assert_allclose(found, half.predict(TEST).mean, atol=1e-12)


def test_a_compiled_condition_is_accurate_in_float32():
    half = fit(slice(0, 8))
    compiled = eqx.filter_jit(lambda posterior, x, y: posterior.condition(x, y))
    got = compiled(half, jnp.asarray(X[8:], jnp.float32), jnp.asarray(Y[8:], jnp.float32))
    assert got.scale.dtype == jnp.float32
    assert_equal(got, half.condition(X[8:], Y[8:]), atol=1e-5)


def dense(posterior, expansion):
    """The function-space Laplace approximation with the posterior's own moments as the prior's."""
    inputs = np.concatenate([X[8:], TEST])
    found, q = posterior.predict(inputs), 2
    carried = np.asarray(posterior.covariance(inputs)) - np.einsum(
        "nq,nm,qp->nqmp", found.unexplained, np.eye(len(inputs)), np.eye(q)
    )
    size = 6 * q
    flat, mean = carried.reshape(len(inputs) * q, -1), np.asarray(found.mean).ravel()
    got = references.gp_laplace(
        flat[:size, :size], flat[size:, :size], flat[size:, size:], lambda f: expansion(f + mean[:size])
    )
    return got.mean + mean[size:], np.diag(got.covariance), got.log_evidence


@pytest.mark.slow
@pytest.mark.parametrize("start", ["refined", "network", "precision"])
@pytest.mark.parametrize("family", ["Gaussian", "Bernoulli", "Poisson"])
def test_any_posterior_and_likelihood_against_dense_algebra(x64, start, family):
    options = (
        {"form": "precision", "mean": "network", "delta": None, "rtol": None}
        if start == "precision"
        else {"mean": start}
    )
    posterior = fit(slice(0, 8), missed_as_noise=None if start == "precision" else False, **options)
    if family == "Gaussian":
        likelihood, targets = Gaussian(NOISE), Y[8:]
        weights, flat = np.tile(NOISE**-2, 6), targets.ravel()

        def expansion(f):
            value = np.sum(-0.5 * weights * (flat - f) ** 2 + 0.5 * np.log(weights / (2 * np.pi)))
            return value, weights * (flat - f), np.diag(weights)
    else:
        likelihood = Bernoulli() if family == "Bernoulli" else Poisson()
        targets = np.random.default_rng(3).integers(0, 2, size=(6, 2))
        make = references.bernoulli_expansion if family == "Bernoulli" else references.poisson_expansion
        expansion = make(targets.ravel())
    later = posterior.condition(X[8:], targets, likelihood)
    mean, variance, log_evidence = dense(posterior, expansion)
    found = later.predict(TEST)
    np.testing.assert_allclose(np.asarray(found.mean).ravel(), mean, atol=1e-7)
    np.testing.assert_allclose(np.asarray(found.variance - found.unexplained).ravel(), variance, atol=1e-7)
    np.testing.assert_allclose(later.log_evidence - posterior.log_evidence, log_evidence, atol=1e-7)
    if start == "refined":
        compiled = jax.jit(lambda x, y: posterior.condition(x, y, likelihood).predict(TEST))
        again = compiled(jnp.asarray(X[8:]), jnp.asarray(targets))
        np.testing.assert_allclose(again.mean, found.mean, atol=1e-7)
        np.testing.assert_allclose(again.variance, found.variance, atol=1e-7)


@pytest.mark.slow
def test_a_conditioned_posterior_is_saved_and_loaded(x64, half, tmp_path):
    later = half.condition(X[8:], Y[8:])
    fsp.save(tmp_path / "later.safetensors", later)
    loaded = fsp.load(tmp_path / "later.safetensors", half.model)
    assert_equal(loaded, later, atol=0)
    assert int(loaded.later.num_rows) == 6
    assert_equal(loaded.condition(TEST, TEST), later.condition(TEST, TEST), atol=0)


def test_leaving_one_out_equals_fitting_without_it(x64, pair):
    posterior = pair.half
    got = posterior.leave_one_out(X[:8], Y[:8])
    for row in range(8):
        without = fit(np.delete(np.arange(8), row), **pair.options)
        found = without.predict(X[row : row + 1])
        np.testing.assert_allclose(got.mean[row], found.mean[0], atol=1e-8)
        np.testing.assert_allclose(got.variance[row], found.variance[0], atol=1e-8)
        covariance = np.asarray(without.covariance(X[row : row + 1], joint=False))[0] + np.diag(NOISE**2)
        off = Y[row] - np.asarray(found.mean[0])
        density = -0.5 * (off @ np.linalg.solve(covariance, off) + np.linalg.slogdet(2 * np.pi * covariance)[1])
        np.testing.assert_allclose(got.log_density[row], density, atol=1e-7)


def test_leaving_one_out_knows_later_rows_and_noise_of_each_row(x64, half):
    scale = np.random.default_rng(2).uniform(0.05, 0.5, size=(6, 2))
    later = half.condition(X[8:], Y[8:], Gaussian(scale))
    got = later.leave_one_out(X[8:], Y[8:], Gaussian(scale))
    keep = np.arange(6) != 2
    without = half.condition(X[8:][keep], Y[8:][keep], Gaussian(scale[keep])).predict(X[10:11])
    np.testing.assert_allclose(got.mean[2], without.mean[0], atol=1e-9)
    np.testing.assert_allclose(got.variance[2], without.variance[0], atol=1e-9)
    np.testing.assert_allclose(later.leave_one_out(X[:8], Y[:8]).std.shape, (8, 2))


def test_a_posterior_leaves_out_the_values_that_it_knows(x64, half):
    """Without arguments: the rows of the fit, then those of `condition`, each with its own noise; slopes are no values."""
    scale = np.random.default_rng(2).uniform(0.05, 0.5, size=(6, 2))
    later = half.condition(X[8:], Y[8:], Gaussian(scale))
    got = later.condition(TEST[:2] / 2, TEST[:2], Gaussian(1.0), of=fsp.operators.partial(0))
    same = [got.leave_one_out(X[:8], Y[:8]), got.leave_one_out(X[8:], Y[8:], Gaussian(scale))]
    found = got.leave_one_out()
    for name in ("mean", "variance", "log_density"):
        wanted = np.concatenate([getattr(part, name) for part in same])
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-12, err_msg=name)
    # A fit that never saw the first row.
    without = fit(np.arange(1, 8)).condition(X[8:], Y[8:], Gaussian(scale)).predict(X[:1])
    np.testing.assert_allclose(later.leave_one_out().mean[0], without.mean[0], atol=1e-8)


def test_data_are_remembered_as_they_were_and_forgotten_where_they_could_be_others(x64, half, tmp_path):
    rows, targets = X[8:].copy(), Y[8:].copy()
    later = half.condition(rows, targets)
    before = later.leave_one_out()
    rows[:], targets[:] = 0.0, 0.0
    np.testing.assert_array_equal(later.leave_one_out().log_density, before.log_density)
    fsp.save(tmp_path / "later.safetensors", later)
    copies = {
        "file": fsp.load(tmp_path / "later.safetensors", half.model),
        "copy": copy.copy(later),
        "tree": jax.tree.map(lambda leaf: leaf, later),
        "jit": eqx.filter_jit(lambda one: one.condition(X[8:9], Y[8:9]))(half),
    }
    for name, made in copies.items():
        assert made.told == (), name
        with pytest.raises(ValueError, match=r"leave_one_out: this posterior does not know its data .*; pass X and y"):
            made.leave_one_out()
    for wrong in ({"y": Y}, {"likelihood": Gaussian(0.1)}, {"of": fsp.operators.partial(0)}):
        with pytest.raises(ValueError, match=r"leave_one_out: X is None, but y, likelihood or of is not"):
            half.leave_one_out(**wrong)
    with pytest.raises(ValueError, match=r"leave_one_out: y is None, but X is not"):
        half.leave_one_out(X)


@pytest.mark.slow
def test_leaving_out_what_an_operator_saw(x64, half):
    """Slopes, against conditioning on all others."""
    slope, noise = fsp.operators.partial(0), Gaussian(0.2)
    where, targets = X[8:], np.column_stack([3 * np.cos(3 * X[8:, 0]), np.zeros(6)])
    found = half.condition(where, targets, noise, of=slope).leave_one_out(where, targets, noise, of=slope)
    for row in (0, 3):
        others = np.delete(np.arange(6), row)
        without = half.condition(where[others], targets[others], noise, of=slope)
        one = without.predict(where[[row]], of=slope)
        np.testing.assert_allclose(found.mean[row], one.mean[0], atol=1e-8)
        np.testing.assert_allclose(found.variance[row], one.variance[0], atol=1e-8)
    with pytest.raises(
        ValueError, match=r"Posterior.leave_one_out: likelihood is None, but the posterior's own is of values"
    ):
        half.leave_one_out(where, targets, of=slope)


def test_directions_are_shared_and_rows_that_fill_up_do_not_count(x64, half):
    """17 rows are two blocks of 16 in the program; one row is 15 rows too few."""
    rows = np.random.default_rng(2).uniform(-1, 1, size=(17, 2))
    targets = np.column_stack([np.sin(3 * rows[:, 0]), rows[:, 1] ** 2])
    later = half.condition(rows, targets)
    assert later.scale is half.scale
    assert_equal(later, half.condition(rows[:1], targets[:1]).condition(rows[1:], targets[1:]), atol=1e-10)
    per_row = Gaussian(np.tile(NOISE, (17, 1)))
    assert_equal(later, half.condition(rows, targets, per_row), atol=1e-10)


def test_joint_is_predict_and_covariance_of_each_set(x64, pair):
    posterior, sets = pair.half, np.concatenate([TEST[:6], X[:6]]).reshape(2, 2, 3, 2)
    got = posterior.joint(sets)
    assert got.mean.shape == (2, 2, 3, 2)
    for index in np.ndindex(2, 2):
        np.testing.assert_allclose(got.mean[index], posterior.predict(sets[index]).mean, atol=1e-12)
        np.testing.assert_allclose(got.covariance[index], posterior.covariance(sets[index]), atol=1e-12)
    alone = posterior.joint(TEST)
    np.testing.assert_allclose(alone.covariance, posterior.covariance(TEST), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [jax.jit, eqx.filter_jit], ids=["jax.jit", "filter_jit"])
def test_one_program_serves_posteriors_of_similar_rank(x64, half, compilations, compiled):
    joint = compiled(lambda posterior, x: (posterior.joint(x), posterior.predict(x[0]).mean))
    sets = jnp.asarray(TEST[:6].reshape(2, 3, 2))
    joint(half, sets)
    joint(half.condition(X[8:10], Y[8:10]), sets)
    others = fit(slice(0, 11), rank=half.rank - 2), half.condition(X[8:9], Y[8:9]).condition(X[9:], Y[9:])
    wanted = [other.joint(np.asarray(sets)).covariance for other in others]
    before = len(compilations)
    for other, covariance in zip(others, wanted, strict=True):
        np.testing.assert_allclose(joint(other, sets)[0].covariance, covariance, atol=1e-12)
    assert len(compilations) == before
    assert others[0].rank == half.rank - 2


def test_words_of_a_verdict_are_not_passed_on_by_a_compiled_function(x64, half):
    same = jax.jit(lambda posterior: posterior)
    assert str(same(half).verdict) == str(half.verdict)
    other = fit(slice(0, 11))
    assert str(same(other).verdict) in (str(other.verdict), f"{other.verdict.level}: its reasons stayed with the posterior that "
                                        "was passed to a compiled function")  # fmt: skip
    assert str(same(other).verdict) != str(half.verdict)
    assert str(pickle.loads(pickle.dumps(half.verdict))) == str(half.verdict)


def test_what_cannot_be_conditioned_on_is_refused(x64, half):
    with pytest.raises(ValueError, match=r"^X has rows of shape \(1,\), but the model was fitted to \(2,\)"):
        half.condition(X[8:, :1], Y[8:])
    with pytest.raises(ValueError, match=r"has 2 outputs, but Gaussian needs 1 for this y"):
        half.condition(X[8:], Y[8:, 0], Gaussian(0.1))
    with pytest.raises(ValueError, match=r"y has NaN or infinite values \(first in row 1\)"):
        half.condition(X[8:10], np.array([[0.0, 1.0], [np.nan, 1.0]]))
    with pytest.raises(TypeError, match=r"likelihood must be a Likelihood, but got float"):
        half.condition(X[8:], Y[8:], 0.1)
    per_row = fit(slice(0, 8), Gaussian(np.full((8, 1), 0.1)))
    with pytest.raises(
        ValueError, match=r"Gaussian has a parameter for each training row; pass the likelihood of the new"
    ):
        per_row.condition(X[:8], Y[:8])
    with pytest.raises(ValueError, match=r"leave_one_out: Bernoulli has no closed form"):
        half.leave_one_out(X[:8], np.ones((8, 2)), Bernoulli())
    with pytest.raises(
        ValueError, match=r"leave_one_out: row \d has leverage .*; pass the rows, targets and likelihood"
    ):
        half.leave_one_out(TEST, TEST, Gaussian(1e-3))
    with pytest.raises(ValueError, match=r"Posterior.joint: x has shape \(2,\); pass sets of inputs"):
        half.joint(TEST[0])


def test_data_outside_the_context_box_are_said_to_tell_little():
    """The posterior has gone back to the prior there. A little outside, at TEST, they tell as much as inside."""
    posterior = fit(slice(0, 10))
    posterior.condition(TEST, np.resize(Y, (7, 2)))
    inside, outside = np.array([[0.2, -0.3]]), np.array([[3.0, 3.0]])
    with pytest.warns(fsp.VerdictWarning, match="1 of 2 inputs lie so far outside the box of the context"):
        later = posterior.condition(np.concatenate([inside, outside]), Y[:2])
    before, after = posterior.predict(outside).variance, later.predict(outside).variance
    np.testing.assert_allclose(after, before, rtol=0.01)
    jax.eval_shape(lambda x: posterior.condition(x, Y[:1]).log_evidence, jnp.asarray(outside, jnp.float32))

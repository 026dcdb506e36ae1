"""Many outputs, many rows, convolutions: routes that give the same numbers, and curvature from a share of the rows."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.laplace import _covariance_form, _posterior
from fsplaplace.laplace._features import Block, _Kept
from fsplaplace.methods import last_layer
from fsplaplace.networks import jacobian_matrix, pull_back, push_forward, route

SIDE, CLASSES = 6, 3
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.uniform(size=(40, SIDE, SIDE, 1)).astype(np.float32)
LABELS = GENERATOR.integers(0, CLASSES, 40)
PRIOR = fsp.Prior(RBF(lengthscale=2.0, variance=2.0), num_outputs=CLASSES)
LIKELIHOOD = fsp.likelihoods.Categorical(CLASSES)


class Small(eqx.Module):
    """One convolution and one dense layer."""

    convolution: eqx.nn.Conv2d
    dense: eqx.nn.Linear

    def __init__(self, key, classes=CLASSES):
        first, second = jr.split(key)
        self.convolution = eqx.nn.Conv2d(1, 4, 3, key=first)
        self.dense = eqx.nn.Linear(4 * (SIDE - 2) ** 2, classes, key=second)

    def __call__(self, x):
        return self.dense(jnp.tanh(self.convolution(jnp.moveaxis(x, -1, 0))).ravel())


@pytest.fixture(scope="module")
def model():
    return fsp.as_model(Small(jr.key(0)))


def approximate(model, X=IMAGES, y=LABELS, **options):
    settings = {"context_points": IMAGES[:20] * 0.9, "mean": "network", "key": jr.key(0), "rank": 60}
    return fsp.laplace(model, PRIOR, LIKELIHOOD, X, y, **(settings | options))


def test_rows_and_passes_give_the_same_products(model):
    """With many directions for each output the Jacobian's rows are cheaper; with few, passes are: equal to the dense product."""
    dense = np.asarray(jacobian_matrix(model, jnp.asarray(IMAGES)), np.float64)
    for rank, wanted in ((4, "convolutions"), (40, "rows")):
        assert route(model, IMAGES, rank) == wanted
        directions = GENERATOR.normal(size=(rank, model.num_params)).astype(np.float32)
        pushed = np.asarray(push_forward(model, jnp.asarray(IMAGES), directions, budget=1e8))
        np.testing.assert_allclose(pushed.reshape(-1, rank), dense @ directions.T, rtol=1e-3, atol=1e-3)
        seeds = GENERATOR.normal(size=(40, CLASSES, rank)).astype(np.float32)
        pulled = np.asarray(pull_back(model, jnp.asarray(IMAGES), seeds, budget=1e8))
        np.testing.assert_allclose(pulled, seeds.reshape(-1, rank).T @ dense, rtol=1e-3, atol=1e-3)


def test_a_share_of_equal_rows_is_all_of_them(model):
    """If all rows say the same, any share of them says it, and its error is zero."""
    X, y = np.repeat(IMAGES[:1], 24, axis=0), np.ones(24, int)
    whole, half = (approximate(model, X, y, data_share=share, include_training=False) for share in (1.0, 0.5))
    np.testing.assert_allclose(half.predict(IMAGES).variance, whole.predict(IMAGES).variance, rtol=1e-4)
    assert float(half.log_evidence) == pytest.approx(float(whole.log_evidence), rel=1e-4)
    assert float(half.diagnostics.sampling_error) == pytest.approx(0.0, abs=1e-6)
    assert whole.diagnostics.sampling_error is None
    assert "50 % of the rows" in str(half)


def test_a_share_states_about_the_error_it_makes(model):
    whole, half = (approximate(model, data_share=share) for share in (1.0, 0.5))
    found, wanted = (np.sort(np.asarray(each.information, np.float64)) - 1 for each in (half, whole))
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    stated = float(half.diagnostics.sampling_error)
    # Eigenvalues move no more than the matrix does; half of the rows are in both.
    assert 0 < error < 3 * stated
    assert stated < 1


def test_the_networks_own_mean_needs_no_search(model, monkeypatch):
    def refuse(*_):
        raise AssertionError("searched")

    monkeypatch.setattr(_covariance_form, "posterior_mode", refuse)
    posterior = approximate(model)
    np.testing.assert_allclose(posterior.predict(IMAGES).mean, model(IMAGES), atol=1e-6)
    with pytest.raises(AssertionError, match="searched"):
        approximate(model, mean="auto")


def test_class_probabilities_take_one_pass_for_the_features(model, monkeypatch):
    posterior, calls, see = approximate(model), [], _posterior.see

    def counted(*arguments):
        calls.append(arguments)
        return see(*arguments)

    monkeypatch.setattr(_posterior, "see", counted)
    posterior.predict_proba(IMAGES[:5], num_samples=250)
    assert len(calls) == 1


def test_at_the_mode_the_network_has_the_evidence_of_the_mode():
    """A network that is linear in its weights, put at the refined mean: both ways describe one posterior."""
    generator = np.random.default_rng(1)
    inner, bias = generator.normal(size=(2, 150)) * 1.5, generator.uniform(-3, 3, 150)

    def apply(weights, x):
        return jnp.tanh(x @ inner.astype(np.float32) + bias.astype(np.float32)) @ weights

    X = generator.normal(size=(30, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    prior, start = fsp.Prior(RBF(lengthscale=2.0), num_outputs=3), np.zeros((150, 3), np.float32)
    options = {"context_points": generator.normal(size=(40, 2)).astype(np.float32), "key": jr.key(0)}
    refined = fsp.laplace(fsp.as_model((apply, start)), prior, LIKELIHOOD, X, y, mean="refined", **options)
    there = fsp.as_model((apply, np.asarray(refined.shift).reshape(150, 3)))
    network = fsp.laplace(there, prior, LIKELIHOOD, X, y, mean="network", **options)
    assert float(network.log_evidence) == pytest.approx(float(refined.log_evidence), abs=0.1)
    np.testing.assert_allclose(network.predict(X).variance, refined.predict(X).variance, rtol=2e-2)


def test_the_last_layer_alone_is_a_choice_of_weights(model):
    """By a mask and by `last_layer`: the same weights, the same posterior, and fast because it has few."""
    masked = fsp.as_model(Small(jr.key(0)), mask=lambda path: "dense" in path)
    last = last_layer(model, IMAGES[:1])
    assert masked.num_params == last.num_params == 4 * (SIDE - 2) ** 2 * CLASSES + CLASSES
    one, other = (approximate(part).predict(IMAGES[:5]).variance for part in (masked, last))
    np.testing.assert_allclose(one, other, rtol=1e-3)


def test_convolutional_features_are_kept_in_single_precision():
    """Blocks of the second pass are those of the first: there is no second pass through the network."""
    features, outputs, calls = GENERATOR.normal(size=(4, CLASSES, 5)), np.zeros((4, CLASSES)), []

    def stream():
        calls.append(1)
        yield Block(outputs, outputs, features, LABELS[:4], LIKELIHOOD, None)

    kept = _Kept(stream)
    _, (block,) = list(kept()), list(kept())
    assert len(calls) == 1
    np.testing.assert_allclose(block.features, features, rtol=1e-6)
    assert block.features.dtype == np.float64


@pytest.mark.parametrize("classes", [3, 100])
def test_a_plan_without_a_rank_is_one_that_finishes(classes):
    """Three or a hundred classes and 2,000 images: 50 directions for each class, or a refusal that says what fits."""
    row, points = np.zeros((9, SIDE, SIDE, 1), np.float32), np.zeros((2000, SIDE, SIDE, 1), np.float32)
    model, prior = fsp.as_model(Small(jr.key(0), classes)), fsp.Prior(RBF(), num_outputs=classes)
    options = {"include_training": False, "solver": "golub-kahan"}
    planned = fsp.plan(model, prior, row, points, memory_budget=1e12, **options)
    assert planned.rank == 50 * classes
    with pytest.raises(MemoryError, match=r"pass rank=\d+"):
        fsp.plan(model, prior, row, points, memory_budget=planned.peak_bytes / 10, **options)


def test_a_hundred_classes_are_refused_before_their_factor_is_allocated():
    """By `laplace` as by `plan`: the factor alone would be 2 GB, and no rank that is named is below one for each class."""
    points = GENERATOR.uniform(size=(500, SIDE, SIDE, 1)).astype(np.float32)
    model, prior = fsp.as_model(Small(jr.key(0), 100)), fsp.Prior(RBF(), num_outputs=100)
    arguments = (model, prior, fsp.likelihoods.Categorical(100), IMAGES, LABELS)
    with pytest.raises(MemoryError, match=r"laplace: rank 5000 .* pass rank=(\d{3,})") as refused:
        fsp.laplace(*arguments, context_points=points, memory_budget=1e9, include_training=False)
    fits = int(re.search(r"pass rank=(\d+)", str(refused.value))[1])
    planned = fsp.plan(*arguments[:2], IMAGES, points, rank=fits, memory_budget=1e9, include_training=False)
    assert planned.rank <= fits
    with pytest.raises(MemoryError, match=r"no rank of 100 or more, one for each output, fits it: pass fewer context"):
        fsp.laplace(*arguments, context_points=points, memory_budget=1e8, include_training=False)


BYTES = (255 * IMAGES).astype(np.uint8)


@pytest.mark.parametrize(
    ("who", "call"),
    [
        ("X", lambda model: fsp.train(model, PRIOR, LIKELIHOOD, fsp.context.Data(IMAGES), BYTES, LABELS, key=jr.key(0), steps=1, num_context=3, progress=False)),
        ("X", lambda model: approximate(model, BYTES, context_points=IMAGES[:20])),
        ("context_points", lambda model: approximate(model, context_points=BYTES[:20])),
        ("x", lambda model: approximate(model).predict(BYTES[:2])),
        ("rows", lambda model: fsp.context.Data(BYTES)),
        ("X", lambda model: fsp.fit_prior(PRIOR, BYTES, LABELS, LIKELIHOOD, key=jr.key(0), restarts=1, standard_errors=False)),
    ],
    ids=["train", "laplace", "context points", "predict", "sampler", "fit_prior"],
)  # fmt: skip
def test_bytes_are_named_with_their_range_wherever_images_come_in(model, who, call):
    # Only this warning counts: such inputs are outside of everything else, which is said as well.
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(model)
    assert any(
        re.search(rf"\b{who} holds bytes from \d+ to 2\d\d; .* pass {who} / 255", str(each.message)) for each in said
    )


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (255 * IMAGES, r"from 0\.\d+ to 25\d\.\d; .* pass X / 255"),
        ((255 * IMAGES).astype(np.int64), r"from 0 to 254; .* pass X / 255"),
        ((255 * IMAGES).astype(np.float16), r"from 0\.\d+ to 25\d\.\d; .* pass X / 255"),
        ((65535 * IMAGES).astype(np.uint16), r"from \d+ to 6\.\d+e\+04; .* pass X / 65535"),
        (-300 * IMAGES, r"from -299\.\d to -0\.\d+; .* pass X / \d{3}\.\d+"),
    ],
    ids=["float32", "int64", "float16", "uint16", "below zero"],
)
def test_grey_levels_of_any_type_are_named_with_their_range(model, images, said):
    with pytest.warns(UserWarning, match="X holds values " + said):
        model.check_inputs(images)


@pytest.mark.parametrize("images", [IMAGES, IMAGES > 0.5, 10 * IMAGES - 5, (IMAGES > 0.5).astype(np.uint8)])
def test_numbers_of_order_one_are_no_grey_levels(model, images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.check_inputs(images)
        model.check_inputs(1000 * GENERATOR.uniform(size=(30, 2)))  # tables have units of any size


def test_labels_that_are_words_are_named(model):
    words = np.array(["bag", "coat", "dress"])[LABELS]
    with pytest.raises(ValueError, match=r"words such as '\w+'; .* numpy\.unique\(\.\.\., return_inverse=True\)\[1\]"):
        approximate(model, y=words)
    whole = approximate(model, y=np.unique(words, return_inverse=True)[1])
    assert np.all(np.isfinite(whole.predict(IMAGES[:2]).variance))


def test_other_shapes_are_named(model):
    options = {"key": jr.key(0), "steps": 1, "num_context": 3, "progress": False}
    arguments = (model, PRIOR, LIKELIHOOD, fsp.context.Data(IMAGES))
    with pytest.raises(ValueError, match="channels first or last"):
        fsp.train(*arguments, np.moveaxis(IMAGES, -1, 1), LABELS, **options)
    with pytest.raises(ValueError, match="one-hot"):
        fsp.train(*arguments, IMAGES, np.eye(CLASSES)[LABELS], **options)
    with pytest.raises(ValueError, match="context points have shape"):
        fsp.train(*arguments[:3], fsp.context.Data(IMAGES[:, :4]), IMAGES, LABELS, **options)


def test_plans_count_rows_as_rows(model):
    """Operations of the data: reverse passes for each output and one product, fewer than a pass for each direction."""
    planned = fsp.plan(model, PRIOR, IMAGES, IMAGES[:20], rank=60)
    assert planned.route == "rows"
    flops = {stage.name: stage.flops for stage in planned.stages}
    row = jax.ShapeDtypeStruct((1, SIDE, SIDE, 1), jnp.float32)
    once = jax.jit(lambda params, x: model.evaluate(params, x)).lower(model.params, row).cost_analysis()["flops"]
    assert flops["data"] < (40 + 1500) * planned.rank * 2 * once

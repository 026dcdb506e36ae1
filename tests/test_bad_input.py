"""What the whole pipeline says to input it cannot use; nothing is clipped to look right."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas
import pytest
import scipy.sparse
from gpjax.kernels import RBF, AbstractKernel

import fsplaplace as fsp

X = np.linspace(-1, 1, 8)[:, None]
Y = np.sin(3 * X[:, 0])
POINTS = np.linspace(-1.5, 1.5, 15)[:, None]
BOX = fsp.context.Uniform(-1.5, 1.5)
GAUSSIAN = fsp.likelihoods.Gaussian(0.1)


class Broken(AbstractKernel):
    """NaN everywhere, or minus the squared distance, which is no covariance."""

    value: float | None = None

    def __init__(self, value=None):
        self.value = value
        super().__init__()

    def __call__(self, x, y):
        return jnp.sum(0 * x) + self.value if self.value is not None else -jnp.sum((x - y) ** 2)


def network(num_inputs=1, num_outputs=1, width=6):
    key = jr.key(0)
    return fsp.as_model(
        (
            lambda params, x: jnp.tanh(x @ params[0]) @ params[1],
            (jr.normal(key, (num_inputs, width)), jr.normal(key, (width, num_outputs))),
        )
    )


def train(model=None, prior=None, likelihood=GAUSSIAN, context=BOX, X=X, y=Y):
    model, prior = model or network(), prior or fsp.Prior(RBF(lengthscale=0.5))
    return fsp.train(model, prior, likelihood, context, X, y, key=jr.key(0), steps=2, num_context=10, progress=False)


def laplace(model=None, prior=None, likelihood=GAUSSIAN, X=X, y=Y, context_points=POINTS, **options):
    model, prior = model or network(), prior or fsp.Prior(RBF(lengthscale=0.5))
    return fsp.laplace(model, prior, likelihood, X, y, context_points=context_points, **options)


def with_value(array, value, row=3):
    array = array.copy()
    array[row] = value
    return array


WRONG_DATA = [
    ({"X": with_value(X, np.nan)}, r"X has NaN or infinite values \(first in row 3\); remove or impute those rows"),
    ({"X": with_value(X, np.inf)}, r"X has NaN or infinite values \(first in row 3\)"),
    ({"X": with_value(X, 1e300)}, r"X has NaN or infinite values \(first in row 3\)"),
    ({"y": with_value(Y, np.nan)}, r"Gaussian: y has NaN or infinite values \(first in row 3\)"),
    ({"y": with_value(Y, -np.inf)}, r"Gaussian: y has NaN or infinite values \(first in row 3\)"),
    ({"X": X[:0], "y": Y[:0]}, r"X has shape \(0, 1\); pass at least one row, as \(n, d\)"),
    ({"X": X[:, 0]}, r"X has shape \(8,\); pass at least one row, as \(n, d\)"),
    ({"y": Y[:5]}, r"Gaussian: y has shape \(5,\), but X has 8 rows; pass one target per row"),
    ({"X": X.astype(str)}, r"X has dtype <U\d+, words such as '.+'; pass numbers"),
    ({"X": np.hstack([X, X])}, r"<lambda> cannot take X with rows of shape \(2,\)"),
    (
        {"y": np.column_stack([Y, Y])},
        r"<lambda> has 1 outputs, but Gaussian needs 2 for this y; change the network's last",
    ),
    ({"model": network(num_outputs=2)}, r"<lambda> has 2 outputs, but the prior has 1; .* pass num_outputs=2 to Prior"),
    (
        {"prior": fsp.Prior(RBF(), num_outputs=3)},
        r"<lambda> has 1 outputs, but the prior has 3; change the network's last layer",
    ),
    (
        {"prior": fsp.Prior(Broken(np.nan))},
        r"Prior: the kernel Broken gave NaN or infinite covariances at the context points; check its parameters",
    ),
    (
        {"prior": fsp.Prior(Broken())},
        r"Prior: the kernel Broken is not positive semi-definite at the context points \(eigenvalues from",
    ),
    (
        {"likelihood": fsp.likelihoods.Bernoulli(), "y": np.arange(8) % 3},
        r"Bernoulli: y must hold 0 and 1, but it has values from 0 to 2",
    ),
    (
        {
            "likelihood": fsp.likelihoods.Categorical(3),
            "y": np.arange(8),
            "model": network(num_outputs=3),
            "prior": fsp.Prior(RBF(), num_outputs=3),
        },
        r"Categorical: y must lie in 0, ..., 2, but it has values from 0 to 7; recode the labels or change num_classes",
    ),
    (
        {"likelihood": fsp.likelihoods.Categorical(3), "y": np.arange(8) % 3},
        r"<lambda> has 1 outputs, but Categorical needs 3 for this y",
    ),
    (
        {"model": fsp.as_model((lambda params, x: (x - x.mean(axis=0)) @ params, jnp.ones((1, 1))))},
        r"<lambda> depends on the batch \(outputs move by",
    ),
]


@pytest.mark.parametrize("fit", [train, laplace])
@pytest.mark.parametrize(("arguments", "message"), WRONG_DATA)
def test_wrong_data_is_refused_before_anything_is_computed(fit, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


@pytest.mark.parametrize("fit", [train, laplace])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": lambda x: x}, r"model must be a Model, but got function; wrap the network with fsplaplace.as_model"),
        ({"prior": RBF()}, r"prior must be a Prior, but got RBF"),
        ({"likelihood": 0.1}, r"likelihood must be a Likelihood, but got float"),
    ],
)
def test_arguments_of_another_type_are_refused(fit, arguments, message):
    with pytest.raises(TypeError, match=message):
        fit(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"context_points": with_value(POINTS, np.nan)},
            r"context_points has NaN or infinite values \(first in row 3\)",
        ),
        ({"context_points": POINTS[:0]}, r"context_points has shape \(0, 1\); pass at least one row"),
        (
            {"context_points": np.hstack([POINTS] * 3)},
            r"context_points has rows of shape \(3,\), but X has \(1,\); pass points of the same width",
        ),
        ({"guard_points": np.ones((4, 2))}, r"guard_points has rows of shape \(2,\), but X has \(1,\)"),
        ({"form": "inverse"}, r"laplace: form is 'inverse'; pass one of 'covariance', 'precision'"),
        ({"mean": "map"}, r"laplace: mean is 'map'; pass one of 'auto', 'network', 'refined'"),
        ({"solver": "cg"}, r"laplace: solver is 'cg'; pass one of 'auto', 'dense', 'normal-equations', 'golub-kahan'"),
        ({"rank": 0}, r"laplace: rank is 0; pass 1 or more, or None for no limit"),
        ({"rtol": 0.0}, r"laplace: rtol is 0.0; pass a number above 0 and below 1"),
        ({"delta": -1.0}, r"laplace: delta is -1.0; pass a positive number"),
        ({"memory_budget": 0}, r"memory_budget is 0; pass a positive number of bytes"),
        ({"form": "precision", "mean": "refined"}, r"laplace: the precision form has the network's mean only"),
        (
            {"X": np.ones((4, 1)), "y": Y[:4], "context_points": None},
            r"around: all 4 rows of X are equal, .* pass bounds",
        ),
    ],
)
def test_wrong_options_of_laplace_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        laplace(**arguments)


def test_a_dense_solver_beyond_the_budget_is_refused_with_the_way_out():
    with pytest.raises(MemoryError, match=r"laplace: solver='dense' needs .* pass solver='golub-kahan'"):
        laplace(network(width=40), solver="dense", memory_budget=18_000.0)


def test_context_of_another_width_is_refused_in_training():
    wide = fsp.context.Uniform([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"train: context points have shape \(2,\) per row, but X has \(1,\)"):
        train(context=wide)


def test_inputs_without_columns_of_their_own_need_context_points():
    images = np.zeros((4, 2, 2))
    model = fsp.as_model((lambda params, x: x.reshape(x.shape[0], -1) @ params, jnp.ones((4, 1))))
    with pytest.raises(ValueError, match=r"laplace: there are no default context points for inputs of shape \(2, 2\)"):
        laplace(model, X=images, y=np.zeros(4), context_points=None)


def test_integers_are_numbers():
    """Integer inputs and targets give exactly what their floating-point copies give."""
    inputs, targets = np.arange(-4, 4)[:, None], np.arange(8)
    points = np.arange(-6, 6)[:, None]
    for fit in (
        lambda X, y, C: train(X=X, y=y).model.weights,
        lambda X, y, C: laplace(X=X, y=y, context_points=C).scale,
    ):
        np.testing.assert_array_equal(
            fit(inputs, targets, points), fit(inputs.astype(float), targets.astype(float), points.astype(float))
        )


def test_training_works_with_one_row_and_with_equal_rows():
    for inputs in (X[:1], np.repeat(X[:1], 5, axis=0)):
        run = train(X=inputs, y=np.full(len(inputs), 0.3))
        assert np.all(np.isfinite(run.history.objective))


def test_a_failed_fit_leaves_the_callers_objects_as_they_were():
    model = network()
    before = np.asarray(model.weights)
    with pytest.raises(ValueError, match=r"NaN"):
        train(model, X=with_value(X, np.nan))
    np.testing.assert_array_equal(model.weights, before)


def own_network(call, weights=None):
    return fsp.as_model((call, jnp.ones((1, 1)) if weights is None else weights))


MEANINGLESS = {
    "rank of infinity": (lambda: laplace(rank=np.inf), r"laplace: rank is inf; pass a whole number, 1 or more"),
    "half a rank": (lambda: laplace(rank=1.5), r"laplace: rank is 1\.5; pass a whole number"),
    "no memory limit": (lambda: laplace(memory_budget=np.inf), r"laplace: memory_budget is inf; pass a number, a positive"),
    "a loss for a log density": (
        lambda: laplace(likelihood=fsp.likelihoods.FromLogDensity(lambda f, y: (f[0] - y) ** 2)),
        r"FromLogDensity: the log density grows without bound .* return log p\(y \| f\), not the loss",
    ),
    "a column that is not there": (
        lambda: laplace(prior=fsp.Prior(RBF(active_dims=[5]))),
        r"the kernel RBF uses active_dims=\[5\], but the inputs have 1 column",
    ),
    "length scales for other columns": (
        lambda: laplace(prior=fsp.Prior(RBF(lengthscale=[1.0, 2.0, 3.0]))),
        r"the kernel RBF has 3 length scales, but acts on 1 column",
    ),
    "a column of a part": (
        lambda: laplace(prior=fsp.Prior(RBF() + RBF(active_dims=[1]) * RBF())),
        r"active_dims=\[1\], but the inputs have 1 column",
    ),
    "targets of 1e300": (lambda: laplace(y=with_value(Y, 1e300)), r"Gaussian: y has values up to inf, whose squares float32"),
    "one target of 1e25": (lambda: laplace(y=with_value(Y, 1e25)), r"Gaussian: y has values up to 1e\+25, whose squares"),
    "inputs of 1e25": (lambda: laplace(X=with_value(X, 1e25)), r"X has values up to 1e\+25, whose squares float32"),
    "dates as targets": (lambda: laplace(y=np.arange(8).astype("datetime64[D]")), r"y has dtype datetime64\[D\]; pass numbers"),
    "masked inputs": (
        lambda: laplace(X=np.ma.masked_array(X, X > 0), context_points=X), r"laplace: X has masked values; fill them"
    ),
    "a variance of 1e30": (
        lambda: laplace(prior=fsp.Prior(RBF(variance=1e30))), r"a parameter of the kernel has values up to 1e\+30, whose squares"
    ),
    "dates in a data frame": (
        lambda: fsp.FSPRegressor().fit(pandas.DataFrame({"t": np.arange(8).astype("datetime64[s]")}), Y),
        r"FSPRegressor: X has (dtype datetime64|columns of dates)",
    ),
    "numbers as texts": (lambda: fsp.FSPRegressor().fit(X.astype(str), Y), r"FSPRegressor: X holds texts; pass numbers"),
    "complex targets of a table": (lambda: fsp.FSPRegressor().fit(X, Y + 0j), r"FSPRegressor: X or y: Complex data"),
    "masked targets": (lambda: laplace(y=np.ma.masked_array(Y, Y > 0)), r"y has masked values; fill them"),
    "a word for a truth value": (lambda: laplace(include_training="no"), r"include_training is 'no'; pass True or False"),
    "complex weights": (lambda: own_network(lambda w, x: x @ w, jnp.ones((1, 1), complex)), r"has weights of dtype complex64"),
    "three parts of validation": (
        lambda: fsp.train(
            network(), fsp.Prior(RBF()), GAUSSIAN, BOX, X, Y, key=0, steps=1, validation=(X, Y, Y), progress=False
        ),
        r"train: validation is a tuple; pass a number or a tuple of 2 values or None|validation",
    ),
    "endless training": (
        lambda: fsp.train(network(), fsp.Prior(RBF()), GAUSSIAN, BOX, X, Y, key=0, steps=np.inf, progress=False),
        r"train: steps is inf; pass a whole number, 1 or more",
    ),
    "one number for the jitter": (
        lambda: fsp.train(network(), fsp.Prior(RBF()), GAUSSIAN, BOX, X, Y, key=0, steps=1, jitter=1e-3, progress=False),
        r"train: jitter is 0\.001; pass a tuple of 2 values",
    ),
    "no prior": (lambda: fsp.train(network(), None, GAUSSIAN, BOX, X, Y, key=0), r"train: prior must be a Prior, but got NoneType"),
    "a checkpoint in no directory": (
        lambda: fsp.train(network(), fsp.Prior(RBF()), GAUSSIAN, BOX, X, Y, key=0, checkpoint="/no/where/at/all"),
        r"there is no directory",
    ),
    "a network of tuples": (lambda: laplace(model=own_network(lambda w, x: (x @ w, x))), r"returned a tuple; make it return one"),
    "a network of integers": (
        lambda: laplace(model=own_network(lambda w, x: (x @ w).astype(int))),
        r"returned dtype int32; make it return one array of floating-point",
    ),
    "weights of NaN": (lambda: laplace(model=own_network(lambda w, x: x @ w, jnp.full((1, 1), jnp.nan))), r"has NaN or infinite weights"),
    "a mean of NaN": (lambda: laplace(prior=fsp.Prior(RBF(), mean=np.nan)), r"Prior: mean is NaN or infinite"),
    "counts above 2^31": (
        lambda: laplace(likelihood=fsp.likelihoods.Poisson(), y=np.full(8, 3e9)),
        r"Poisson: y has values up to 3000000000, above the largest count",
    ),
    "negative variances": (
        lambda: fsp.metrics.log_predictive_density([0.0], [0.0], [-1.0], noise_variance=0.1),
        r"variance has negative values, down to -1",
    ),
    "dates in a table": (
        lambda: fsp.FSPRegressor().fit(X, np.arange(8).astype("datetime64[D]")), r"FSPRegressor: y has dtype datetime64"
    ),
    "an outlier in a table": (lambda: fsp.FSPRegressor().fit(X, with_value(Y, 1e200)), r"FSPRegressor: y has values up to 1e\+200"),
    "a masked table": (lambda: fsp.FSPRegressor().fit(np.ma.masked_array(X, X > 0), Y), r"FSPRegressor: X has masked values"),
    "steps of a table": (lambda: fsp.FSPRegressor(steps=1.5).fit(X, Y), r"FSPRegressor: steps is 1\.5; pass a whole number"),
    "a word in a table": (lambda: fsp.FSPRegressor(ard="no").fit(X, Y), r"FSPRegressor: ard is 'no'; pass True or False"),
    "masked weights of a table": (
        lambda: fsp.FSPRegressor().fit(X, Y, sample_weight=np.ma.masked_array(np.ones(8), Y > 0)),
        r"FSPRegressor: sample_weight has masked values",
    ),
    "no columns": (lambda: laplace(X=X[:, :0]), r"X has shape \(8, 0\); pass at least one column"),
    "rows of different lengths": (lambda: laplace(X=[[1.0], [1.0, 2.0]] * 4), r"X is a list that NumPy cannot read"),
    "a network of NaN": (
        lambda: laplace(model=own_network(lambda w, x: x @ w + jnp.log(-1 - x**2))), r"returns NaN or infinite outputs at row 0"
    ),
    "a network without derivatives": (
        lambda: laplace(model=own_network(lambda w, x: x @ w + jnp.sqrt(0 * w[0]))), r"has NaN or infinite derivatives in its weights"
    ),
    "noise that vanishes": (lambda: fsp.likelihoods.Gaussian(1e-30), r"Gaussian: scale is as small as 1e-30"),
    "a variance of zero": (
        lambda: laplace(prior=fsp.Prior(RBF(variance=0.0))), r"a parameter of the kernel is zero, infinite or NaN; pass positive"
    ),
    "half a column": (lambda: laplace(prior=fsp.Prior(RBF(active_dims=[0.5]))), r"active_dims=\[0\.5\]; pass whole numbers"),
    "a mean of nothing": (lambda: laplace(prior=fsp.Prior(RBF(), mean=lambda x: None)), r"Prior: mean returned nothing"),
    "a complex mean": (lambda: laplace(prior=fsp.Prior(RBF(), mean=lambda x: 1j * x)), r"Prior: mean returned complex numbers"),
    "a mean in NumPy": (
        lambda: laplace(prior=fsp.Prior(RBF(), mean=lambda x: np.sin(np.asarray(x)))), r"mean cannot be compiled by JAX .* jax\.numpy"
    ),
    "a density of texts": (
        lambda: laplace(likelihood=fsp.likelihoods.FromLogDensity(lambda f, y: "likely")),
        r"FromLogDensity: the log density cannot be computed by JAX",
    ),
    "a traced key": (
        lambda: jax.jit(lambda key: fsp.context.Halton([0.0], [1.0]).sample(3, key=key))(jr.key(0)), r"key is traced by jax\.jit"
    ),
    "a column that a draw does not have": (
        lambda: fsp.Prior(RBF(active_dims=[5])).sample(X, key=0), r"uses active_dims=\[5\], but the inputs have 1 column"
    ),
    "points of two spaces": (
        lambda: fsp.Prior(RBF()).covariance(X, np.ones((3, 2))), r"Prior: x has 1 columns, but y has 2; pass points of one space"
    ),
    "weights of half precision": (
        lambda: own_network(lambda w, x: x @ w, jnp.ones((1, 1), jnp.float16)), r"weights of dtype float16; cast them to float32"
    ),
    "a negative length scale": (
        lambda: fsp.Prior(RBF(lengthscale=-1.0)).sample(X, key=0), r"Prior: a parameter of the kernel is zero, infinite or NaN"
    ),
    "samplers of two spaces": (
        lambda: fsp.context.Mixture([BOX, fsp.context.Uniform([0.0, 0.0], [1.0, 1.0])]).sample(4, key=0),
        r"Mixture: samplers give points of shapes \(1,\), \(2,\); pass samplers of one space",
    ),
    "an activation of all units": (
        lambda: fsp.mlp([5], prior=fsp.Prior(RBF()), context=BOX, key=0, activation=jnp.sum), r"mlp: activation returned shape \(\) for 5"
    ),
    "a sparse table": (lambda: laplace(X=scipy.sparse.eye_array(8)), r"laplace: X is a sparse .*; pass its \.toarray\(\)"),
    "a name with a zero byte": (
        lambda: fsp.train(network(), fsp.Prior(RBF()), GAUSSIAN, BOX, X, Y, key=0, steps=1, checkpoint="a\0b", progress=False),
        r"cannot be the name of a file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MEANINGLESS)
def test_what_would_give_a_meaningless_result_is_refused_with_a_sentence(case):
    call, message = MEANINGLESS[case]
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        call()


@pytest.mark.parametrize("call", [lambda w, x: 0 * x, lambda w, x: 0 * x @ w], ids=["no weights", "weights times zero"])
def test_a_network_that_ignores_its_weights_has_the_prior_s_variance_and_is_not_to_be_used(call):
    """It has no features, so that nothing is known: certainty would be the worst answer."""
    with pytest.warns(fsp.VerdictWarning, match="do not use"):
        posterior = laplace(model=own_network(call))
    np.testing.assert_allclose(posterior.predict(POINTS).variance, 1.0, rtol=1e-5)

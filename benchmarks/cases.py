"""Answers that were wrong without a word: the numbers of each case before and after.

    python benchmarks/cases.py                    # this tree and commit 168fc86, each case in a process of its own
    python benchmarks/cases.py --cases 1 3        # some of them; the rows of others are kept
    python benchmarks/cases.py --quick            # a short one in this tree alone, for the test suite

Writes `benchmarks/results/cases.json` and, from it, `cases.md`. "Said" counts warnings that the user sees, or the caution with which
the posterior prints. The exact values are those of a Gaussian process in NumPy.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, ArcCosine, Linear, Matern12, Matern32, Periodic
from gpjax.parameters import val
from results import markdown_table, write_results

import fsplaplace as fsp
from fsplaplace.baselines import ExactGP, last_layer

REPOSITORY = Path(__file__).resolve().parents[1]
BEFORE = "168fc86"
Values = Iterator[tuple[str, object, object]]


def _sine(rows: int = 100):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (rows, 1))
    return X, np.sin(6 * X[:, 0]) + 0.1 * generator.normal(size=rows)


def _rbf(lengthscale: float) -> Callable:
    return lambda a, b: np.exp(-0.5 * np.sum(((a[:, None] - b[None]) / lengthscale) ** 2, axis=2))


def _exact(kernel: Callable, X, y, x, noise: float):
    """Mean, standard deviation of the function, log evidence of a process of mean zero and variance one."""
    lower = np.linalg.cholesky(kernel(X, X) + noise**2 * np.eye(len(X)))
    half, white = np.linalg.solve(lower, kernel(X, x)), np.linalg.solve(lower, y)
    evidence = -0.5 * white @ white - np.log(np.diag(lower)).sum() - 0.5 * len(y) * np.log(2 * np.pi)
    return half.T @ white, np.sqrt(np.maximum(1 - np.sum(half**2, axis=0), 0)), float(evidence)


class _Said:
    """Whether something was said: warnings of the package, or a caution in what a posterior prints."""

    def __enter__(self):
        self._catcher = warnings.catch_warnings(record=True)
        self._caught = self._catcher.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *arguments):
        self._catcher.__exit__(*arguments)

    def about(self, *posteriors) -> str:
        """Yes or no."""
        ours = [each for each in self._caught if issubclass(each.category, UserWarning)]
        printed = [str(each) for each in posteriors]
        return "yes" if ours or any("Caution" in text or "caution" in text for text in printed) else "no"


def _fit(prior, X, y, likelihood, *, widths=(50, 50), steps=0, **options):

    context = fsp.context.around(X)
    model = fsp.as_model(fsp.mlp(list(widths), prior=prior, context=context, key=jr.key(1)))
    if steps:
        trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=steps, progress=False)
        model = trained.model
    return fsp.laplace(model, prior, likelihood, X, y, **options)


def prior_mean(steps=(500, 2000), offset: float = 10.0) -> Values:
    """1. A non-zero prior mean, then training."""
    X, y = _sine()
    x = np.linspace(-1, 1, 61)[:, None]
    mean, _, evidence = _exact(_rbf(0.3), X, y, x, 0.1)
    for count in steps:
        prior = fsp.Prior(RBF(lengthscale=0.3), mean=offset)
        posterior = _fit(prior, X, y + offset, fsp.likelihoods.Gaussian(0.1), steps=count)
        error = np.asarray(posterior.predict(x).mean)[:, 0] - offset - mean
        yield f"RMSE to the exact process, {count} steps", 0.0, float(np.sqrt(np.mean(error**2)))
        yield f"log evidence, {count} steps", evidence, float(posterior.log_evidence)


def far_inputs() -> Values:
    """2. Inputs far from zero, then training."""
    X, y = _sine()
    x = np.linspace(-1, 1, 61)[:, None]
    mean, _, _ = _exact(_rbf(0.3), X, y, x, 0.1)
    for shift in (300.0, 1000.0, 1e6):
        with _Said() as said:
            prior = fsp.Prior(RBF(lengthscale=0.3))
            posterior = _fit(prior, X + shift, y, fsp.likelihoods.Gaussian(0.1), steps=500)
        error = np.asarray(posterior.predict(x + shift).mean)[:, 0] - mean
        yield f"RMSE to the exact process, x + {shift:g}", 0.0, float(np.sqrt(np.mean(error**2)))
        yield f"said, x + {shift:g}", "if wrong", said.about(posterior)


class _Shuffled:
    """Batches in another order at every pass, as a DataLoader gives them."""

    def __init__(self, X, y):
        self.X, self.y, self.generator = X, y, np.random.default_rng(0)

    def __len__(self):
        return -(-len(self.X) // 16)

    def __iter__(self):
        order = self.generator.permutation(len(self.X))
        for part in np.array_split(order, len(self)):
            yield self.X[part], self.y[part]


def shuffled_batches() -> Values:
    """3. Batches that are shuffled at every pass."""
    X, y = _sine()
    evidence = _exact(_rbf(0.3), X, y, X, 0.1)[2]
    for name, prior, likelihood, targets in (
        ("log evidence", fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1), y),
        ("accuracy", fsp.Prior(RBF(lengthscale=0.3, variance=9.0)), fsp.likelihoods.Bernoulli(), (y > 0).astype(int)),
    ):
        model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=fsp.context.around(X), key=jr.key(1)))
        points = fsp.context.around(X).sample(100, key=jr.key(3))
        batches = _Shuffled(X.astype(np.float32), targets)
        posterior = fsp.laplace(model, prior, likelihood, batches, context_points=points)
        if name == "accuracy":
            yield (
                "accuracy, Bernoulli",
                1.0,
                float(np.mean((np.asarray(posterior.predict(X).mean)[:, 0] > 0) == targets)),
            )
        else:
            yield "log evidence, Gaussian", evidence, float(posterior.log_evidence)


def spikes() -> Values:
    """4. Spikes of the variance between context points."""
    generator = np.random.default_rng(0)
    distance = lambda a, b: np.abs(a - b.T)  # noqa: E731
    X, y = _sine()
    wide, box = generator.uniform(0, 20, (150, 1)), generator.uniform(-1, 1, (200, 8))
    scales = np.linspace(0.8, 3.0, 8)

    def ard(a, b):
        scaled = np.sqrt(3 * np.sum(((a[:, None] - b[None]) / scales) ** 2, axis=2))
        return (1 + scaled) * np.exp(-scaled)

    def seasonal(a, b):
        return np.exp(-0.5 * (distance(a, b) / 5) ** 2 - 0.5 * np.sin(np.pi * distance(a, b)) ** 2)

    cases = [
        (f"RBF({length})", RBF(lengthscale=length), _rbf(length), X, y, 300) for length in (0.1, 0.05, 0.02)
    ] + [
        ("Matern-3/2(.1)", Matern32(lengthscale=0.1),
         lambda a, b: (1 + 3**0.5 * distance(a, b) / 0.1) * np.exp(-(3**0.5) * distance(a, b) / 0.1), X, y, 300),
        ("Matern-1/2(.3)", Matern12(lengthscale=0.3), lambda a, b: np.exp(-distance(a, b) / 0.3), X, y, 300),
        ("RBF(.3) on [0, 20]", RBF(lengthscale=0.3), _rbf(0.3), wide, np.sin(wide[:, 0]), 0),
        ("RBF(5) x Periodic(1)", RBF(lengthscale=5.0) * Periodic(lengthscale=1.0, period=1.0), seasonal, wide,
         np.sin(2 * np.pi * wide[:, 0]), 0),
        ("ARD Matern-3/2, 8 columns", Matern32(lengthscale=jnp.asarray(scales)), ard, box, np.sin(2 * box[:, 0]) + box[:, 1], 0),
    ]  # fmt: skip
    for name, kernel, dense, inputs, targets, steps in cases:
        low, high = inputs.min(axis=0), inputs.max(axis=0)
        x = low + (high - low) * np.random.default_rng(1).uniform(size=(1000, inputs.shape[1]))
        with _Said() as said:
            posterior = _fit(fsp.Prior(kernel), inputs, targets, fsp.likelihoods.Gaussian(0.1), steps=steps)
        total = np.sqrt(np.asarray(posterior.predict(x).total_variance, float)[:, 0])
        ratio = total / np.sqrt(_exact(dense, inputs, targets, x, 0.1)[1] ** 2 + 0.01)
        yield f"largest std over the exact one, {name}", 1.0, float(ratio.max())
        yield f"smallest std over the exact one, {name}", 1.0, float(ratio.min())
        yield f"said, {name}", "if wrong", said.about(posterior)


def outside() -> Values:
    """5. Outside the context region."""
    X, y = _sine()
    posterior = _fit(fsp.Prior(RBF(lengthscale=0.3)), X, y, fsp.likelihoods.Gaussian(0.1), steps=300)
    found = posterior.predict(np.linspace(-6, 6, 201)[:, None])
    yield "largest std at up to six ranges (prior 1)", 1.0, float(np.max(np.asarray(found.std)))
    yield "flagged", "yes", "yes" if getattr(found, "outside", None) is not None else "no"
    far = np.concatenate([np.linspace(-20, -10, 50), np.linspace(10, 20, 50)])[:, None]
    posterior = _fit(fsp.Prior(RBF(lengthscale=1.0)), X, y, fsp.likelihoods.Gaussian(0.1))
    found = posterior.predict(far)
    yield "length scale 1, five to ten ranges out: smallest std", 1.0, float(np.min(np.asarray(found.std)))
    yield "length scale 1, five to ten ranges out: largest mean", 0.0, float(np.max(np.abs(np.asarray(found.mean))))
    table = np.random.default_rng(0).normal(size=(60, 3))
    model = fsp.FSPRegressor(steps=100, random_state=0, kernel="rbf").fit(table, np.sin(table[:, 0]))
    prior_std = np.sqrt(float(np.asarray(model.prior_.variance(np.zeros((1, 3), np.float32)))[0, 0]))
    std = np.asarray(model.posterior_.predict(10 * np.random.default_rng(1).normal(size=(300, 3))).std)
    yield "estimator: largest std over the prior's, ten ranges out", 1.0, float(std.max() / prior_std)


def labels() -> Values:
    """6. Other likelihoods than Gaussian."""
    X, y = _sine()
    label, x = (y > 0).astype(int), np.linspace(-1, 1, 400)[:, None]
    kernel = lambda a, b: 4.41 * _rbf(0.02)(a, b)  # noqa: E731
    K, cross, a = kernel(X, X), kernel(x, X), np.zeros(len(X))
    for _ in range(50):
        chance = 1 / (1 + np.exp(-K @ a))
        weight = chance * (1 - chance)
        right = weight * (K @ a) + label - chance
        a = right - np.linalg.solve(np.eye(len(X)) + weight[:, None] * K, weight * (K @ right))
    inner = np.linalg.solve(np.diag(1 / weight) + K, cross.T)
    std = np.sqrt(4.41 - np.sum(cross * inner.T, axis=1))
    shrunk = (cross @ a) / np.sqrt(1 + np.pi / 8 * std**2)
    with _Said() as said:
        prior = fsp.Prior(RBF(lengthscale=0.02, variance=4.41))
        posterior = _fit(prior, X, label, fsp.likelihoods.Bernoulli(), widths=(10, 10))
    found = posterior.predict(x)
    proba = np.asarray(posterior.predict_proba(x, method="probit"))[:, 0]
    yield "mean latent std, RBF(.02), 10x10", float(std.mean()), float(np.mean(np.asarray(found.std)))
    yield "largest error of a probability", 0.0, float(np.max(np.abs(proba - 1 / (1 + np.exp(-shrunk)))))
    yield "said", "yes", said.about(posterior)


def words() -> Values:
    """7. What is known and not said."""
    X, y = _sine()
    prior = fsp.Prior(RBF(lengthscale=0.3, variance=1e-12))
    with _Said() as said:
        posterior = _fit(prior, X, y * 1e-6, fsp.likelihoods.Gaussian(1e-7), steps=300)
    scores = posterior.diagnostics.objectives
    yield "distance of the mean to the exact process in std, y / 1e6", 0.0, float(scores[posterior.diagnostics.mean])
    scale = np.full((len(X), 1), 0.1)
    for name, last in (("", 0.1), (", one row with a scale of 1e6", 1e6)):
        scale[-1] = last
        with _Said() as said:
            prior = fsp.Prior(RBF(lengthscale=0.02))
            posterior = _fit(prior, X, y, fsp.likelihoods.Gaussian(scale), widths=(5, 5))
        yield f"said, 5x5 network under RBF(.02){name}", "yes", said.about(posterior)


def repeated_rows() -> Values:
    """8. Rows (x, y) that repeat."""
    generator = np.random.default_rng(0)
    X = generator.integers(0, 8, (1500, 2)).astype(float)
    y = np.round(1.5 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.43 * generator.normal(size=1500))
    model = fsp.FSPRegressor(steps=300, random_state=0, num_context=200).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    yield "noise", float(np.sqrt(0.43**2 + 1 / 12)), float(model.noise_)
    yield "coverage of 50 % intervals", 0.5, float(np.mean(np.abs(y - mean) < 0.6745 * std))


def few_rows() -> Values:
    """9. More columns than rows."""
    for rows, columns in ((50, 300), (10, 10)):
        generator = np.random.default_rng(0)
        X = generator.normal(size=(rows + 300, columns))
        y = np.sin(X @ generator.normal(size=columns) / columns**0.5) + 0.2 * generator.normal(size=rows + 300)
        with _Said():
            model = fsp.FSPRegressor(random_state=0).fit(X[:rows], y[:rows])
        mean, std = model.predict(X[rows:], return_std=True)
        residual = y[rows:] - mean
        density = np.mean(-0.5 * (residual / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))
        yield f"log predictive density, {rows} x {columns}", "about -1", float(density)
        yield f"coverage of 90 % intervals, {rows} x {columns}", 0.9, float(np.mean(np.abs(residual) < 1.6449 * std))


def stated_period() -> Values:
    """10. A stated period, and noise below a hundredth."""
    generator, X = np.random.default_rng(1), np.linspace(0, 15, 180)[:, None]
    y = 0.05 * (X[:, 0] - 6) ** 2 + np.sin(2 * np.pi * X[:, 0]) + 0.5 * np.cos(4 * np.pi * X[:, 0])
    y = y + 0.05 * generator.normal(size=180)
    with _Said():
        prior = fsp.Prior(RBF() + Linear() + Periodic(period=1.0) * RBF())
        fitted = fsp.fit_prior(prior, X, y, key=jr.key(0), restarts=1, standard_errors=False)
        fine = fsp.fit_prior(
            fsp.Prior(RBF()), X[:60], np.sin(X[:60, 0]), key=jr.key(0), restarts=1, standard_errors=False
        )
    (period,) = (float(val(part.period)) for part in _parts(fitted.prior.kernel) if hasattr(part, "period"))
    yield "period", 1.0, period
    yield "log marginal likelihood", "highest", float(fitted.report.value)
    yield "noise", 0.05, float(np.asarray(fitted.likelihood.scale))
    fine_noise = float(np.asarray(fine.likelihood.scale) / np.sin(X[:60, 0]).std())
    yield "noise of targets without noise, over their std", "small", fine_noise


def _parts(kernel):
    inner = getattr(kernel, "kernels", None)
    return [kernel] if inner is None else [leaf for each in inner for leaf in _parts(each)]


def last_layers() -> Values:
    """11. The last layer."""
    x = jnp.zeros((3, 2))
    sizes = {"z_first": (2, 7), "m_second": (7, 5), "a_last": (5, 1)}
    params = {name: jr.normal(jr.key(0), size) for name, size in sizes.items()}

    def apply(params, x):
        return jnp.tanh(jnp.tanh(x @ params["z_first"]) @ params["m_second"]) @ params["a_last"]

    model = fsp.as_model((apply, params))
    try:
        part = last_layer(model, x)
    except TypeError:
        part = last_layer(model)
    yield "weights kept of a dict whose last layer has 5", 5, int(part.num_params)


def checkpoints() -> Values:
    """12. A checkpoint of another network."""
    X, y = _sine(30)
    prior, context = fsp.Prior(RBF(lengthscale=0.3)), fsp.context.around(X)

    def run(activation, path):
        network = fsp.mlp([5], prior=prior, context=context, key=jr.key(0), activation=activation)
        likelihood = fsp.likelihoods.Gaussian(0.1)
        return fsp.train(
            fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(0), steps=10, progress=False, checkpoint=path
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as directory:
        run(jnp.tanh, Path(directory) / "run")
        try:
            run(jnp.sin, Path(directory) / "run")
            refused = "no"
        except Exception:  # any refusal is one
            refused = "yes"
    yield "another activation refused", "yes", refused


def networks_and_kernels() -> Values:
    """13. Networks, kernels, outputs, cuts."""
    X, y = _sine(40)
    x = np.linspace(-1, 1, 50)[:, None]
    for name, kernel in (("Linear", Linear()), ("ArcCosine", ArcCosine(order=1))):
        try:
            posterior = _fit(fsp.Prior(kernel), X, y, fsp.likelihoods.Gaussian(0.1), widths=(20, 20))
            total = np.asarray(jax.jit(lambda at, p=posterior: p.predict(at).total_variance)(jnp.asarray(x)))
            yield f"{name} prior", "finite", "finite" if np.all(np.isfinite(total)) else "NaN"
        except Exception as error:  # the error is what is measured
            yield f"{name} prior", "finite", type(error).__name__
    sizes = np.array([0.01, 100.0])
    prior = fsp.Prior([RBF(lengthscale=0.3, variance=size**2) for size in sizes])
    posterior = _fit(prior, X, y[:, None] * sizes, fsp.likelihoods.Gaussian(0.1 * sizes))
    ratio = np.asarray(posterior.predict(x).std, float) / sizes / _exact(_rbf(0.3), X, y, x, 0.1)[1][:, None]
    yield "largest std over the exact one, outputs of std .01 and 100", 1.0, float(ratio.max())
    yield "smallest std over the exact one, outputs of std .01 and 100", 1.0, float(ratio.min())
    evidences = []
    for rank in (20, 40, 80):
        with _Said():
            posterior = _fit(fsp.Prior(RBF(lengthscale=0.3)), X, y, fsp.likelihoods.Gaussian(0.1), steps=300,
                             form="precision", context_points=np.linspace(-1.5, 1.5, 100)[:, None], rank=rank)  # fmt: skip
        evidences.append(float(posterior.log_evidence))
    yield "precision form: range of the log evidence over cuts", 0.0, float(np.ptp(evidences))
    for name, call in (
        ("context=array", lambda: fsp.mlp([5], prior=prior, context=X, key=jr.key(0))),
        (
            "FSPRegressor(kernel='linear')",
            lambda: fsp.FSPRegressor(kernel="linear", steps=10, num_context=50).fit(X, y),
        ),
    ):
        try:
            call()
            answer = "works"
        except Exception as error:  # the error is what is measured
            answer = f"{type(error).__name__}: {str(error)[:60]}"
        yield name, "works, or one sentence", answer


def files() -> Values:
    """13, continued. A method's posterior in a fresh process."""
    X, y = _sine(20)
    prior = fsp.Prior(RBF(lengthscale=0.3))
    model = fsp.as_model(fsp.mlp([5], prior=prior, context=fsp.context.around(X), key=jr.key(0)))
    options = {"key": jr.key(0), "prior": prior, "progress": False}
    posterior = ExactGP(tune=False).fit(model, X, y, fsp.likelihoods.Gaussian(0.1), **options)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gp.safetensors"
        fsp.save(path, posterior)
        code = f"import fsplaplace as fsp; fsp.load({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    yield (
        "fsp.load of an exact process",
        "works",
        "works" if done.returncode == 0 else done.stderr.splitlines()[-1].split(str(path))[-1][:80],
    )


def older_processors() -> Values:
    """14. The suite without AVX-512."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}
    tests = Path(os.environ.get("FSPLAPLACE_TREE", REPOSITORY)) / "tests" / "linalg" / "test_orthonormal.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tests.parents[2])
    yield (
        "tests/linalg/test_orthonormal.py with AVX2 (the issue saw 3 fail on another machine)",
        "all pass",
        done.stdout.strip().splitlines()[-1].split(" in ")[0],
    )


CASES: dict[str, Callable[[], Values]] = {
    "1": prior_mean, "2": far_inputs, "3": shuffled_batches, "4": spikes, "5": outside, "6": labels, "7": words,
    "8": repeated_rows, "9": few_rows, "10": stated_period, "11": last_layers, "12": checkpoints,
    "13: networks and kernels": networks_and_kernels, "13: files": files, "14": older_processors,
}  # fmt: skip
# The tests that hold each case, and cases like it.
TESTS = {
    "1": (
        "tests/test_invariances.py::test_units_and_the_prior_mean_do_not_change_the_posterior",
        "tests/test_invariances.py::test_long_training_under_a_prior_mean_keeps_the_features",
    ),
    "2": (
        "tests/test_invariances.py::test_inputs_far_from_zero_give_the_exact_process_as_well",
        "tests/test_invariances.py::test_the_estimator_standardises_in_float64",
        "tests/laplace/test_verdict.py::test_inputs_that_were_rounded_are_a_reason_for_caution",
    ),
    "3": (
        "tests/test_invariances.py::test_a_loader_that_shuffles_gives_the_posterior_of_the_arrays",
        "tests/test_invariances.py::test_labels_of_a_loader_that_shuffles_stay_with_their_inputs",
        "tests/test_invariances.py::test_one_scale_per_row_needs_batches_in_one_order",
    ),
    "4": (
        "tests/laplace/test_verdict.py::test_no_spikes_between_context_points",
        "tests/laplace/test_verdict.py::test_the_posterior_variance_never_exceeds_the_priors",
        "tests/laplace/test_verdict.py::test_without_data_to_learn_from_the_prior_variance_is_exact_everywhere",
    ),
    "5": (
        "tests/laplace/test_verdict.py::test_the_posterior_variance_never_exceeds_the_priors",
        "tests/laplace/test_verdict.py::test_the_prior_returns_outside_the_context_region",
    ),
    "6": (
        "tests/laplace/test_verdict.py::test_a_network_too_small_for_its_prior_is_not_called_good",
        "tests/laplace/test_verdict.py::test_the_loss_of_labels_is_the_divergence_of_their_probabilities",
        "tests/laplace/test_verdict.py::test_counts_are_judged_in_nats_of_a_count",
    ),
    "7": (
        "tests/laplace/test_verdict.py::test_reasons_name_a_mean_that_is_far_off_and_inputs_outside_the_context",
        "tests/laplace/test_verdict.py::test_one_row_that_says_nothing_does_not_silence_the_verdict",
    ),
    "8": (
        "tests/estimators/test_regressor.py::test_counts_at_repeated_inputs_have_their_noise",
        "tests/tuning/test_repeats.py::test_merged_rows_have_the_density_of_all_rows",
    ),
    "9": (
        "tests/estimators/test_regressor.py::test_few_rows_in_many_columns_are_covered",
        "tests/estimators/test_regressor.py::test_what_the_fit_of_the_prior_says_is_said",
    ),
    "10": (
        "tests/tuning/test_fit_prior.py::test_a_stated_period_is_never_worse_than_one_that_is_fixed",
        "tests/tuning/test_fit_prior.py::test_the_optimum_without_hyperpriors_is_that_of_scikit_learn",
        "tests/tuning/test_fit_prior.py::test_a_precise_fit_has_its_noise",
    ),
    "11": (
        "tests/methods/test_layers.py::test_the_last_layer_is_the_one_that_acts_last",
        "tests/methods/test_layers.py::test_layers_are_numbered_as_they_act",
    ),
    "12": ("tests/training/test_checkpoint.py::test_a_checkpoint_of_other_functions_is_refused",),
    "13: networks and kernels": (
        "tests/networks/test_mlp.py::test_the_posterior_of_a_scale_free_prior_is_that_of_the_exact_process",
        "tests/kernels/test_arc_cosine.py::test_variances_of_many_points_are_finite_under_jit",
        "tests/laplace/test_held.py::test_the_evidence_of_the_precision_form_does_not_move_with_the_cut",
        "tests/laplace/test_verdict.py::test_outputs_of_any_scale_share_a_network",
        "tests/test_invariances.py::test_points_where_a_sampler_is_wanted_are_named",
        "tests/test_invariances.py::test_what_is_no_key_is_named",
    ),
    "13: files": ("tests/test_io.py::test_a_posterior_of_a_method_is_loaded_in_a_fresh_process",),
    "14": ("tests/linalg/test_orthonormal.py::test_spans_what_qr_spans_and_is_orthonormal",),
}


def run_case(name: str) -> list[dict]:
    """The rows of one case in this process; what stops it is its last row."""
    rows = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for what, wanted, value in CASES[name]():
                rows.append({"case": name, "what": what, "wanted": wanted, "value": value})
    except Exception as error:  # a case that cannot be run is a result
        rows.append(
            {"case": name, "what": "stopped by", "wanted": "-", "value": f"{type(error).__name__}: {error}"[:100]}
        )
    return rows


def in_tree(tree: Path, name: str) -> list[dict]:
    """The rows of one case, by the package in a tree, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "FSPLAPLACE_TREE": str(tree)}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def tables(rows: list[dict]) -> str:
    """One table for all cases."""
    parts = []
    for name, case in CASES.items():
        of_it = [row for row in rows if row["case"] == name]
        if of_it:
            body = [[row[key] for key in ("what", "wanted", "before", "after")] for row in of_it]
            tests = "\n".join(f"- `{test}`" for test in TESTS[name])
            table = markdown_table(["", "wanted", "before", "after"], body)
            parts.append(f"## {(case.__doc__ or '').splitlines()[0]}\n\n{table}\n\nTests:\n\n{tests}")
    about = f"Before: commit {BEFORE}; after: the tree that the table was made in. Both are run by `python benchmarks/cases.py`."
    return "\n\n".join(["# Wrong and silent: before and after", about, *parts])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", nargs="+", default=list(CASES), help="names; a number means all that begin with it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_case(options.child)))
        return
    began = time.perf_counter()
    if options.quick:
        rows = [{**row, "before": None, "after": row.pop("value")} for name in ("12",) for row in run_case(name)]
        write_results(options.out, "cases", rows, {"before": None}, seconds=time.perf_counter() - began, tables=tables)
        return
    path, settings = options.out / "cases.json", {"before": BEFORE}
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    with tempfile.TemporaryDirectory() as directory:
        archive = subprocess.run(["git", "archive", BEFORE], cwd=REPOSITORY, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", directory], input=archive, check=True)
        for name in (each for each in CASES if each in options.cases or each.split(":")[0] in options.cases):
            found = {tree: in_tree(where, name) for tree, where in (("before", Path(directory)), ("after", REPOSITORY))}
            labels = dict.fromkeys(row["what"] for rows in found.values() for row in rows)
            values = {tree: {row["what"]: row for row in rows} for tree, rows in found.items()}
            new = []
            for label in labels:
                row = values["after"].get(label) or values["before"][label]
                seen = {tree: values[tree][label]["value"] if label in values[tree] else None for tree in found}
                new.append({"case": name, "what": label, "wanted": row["wanted"], **seen})
            known = [row for row in known if row["case"] != name] + new
            known.sort(key=lambda row: list(CASES).index(row["case"]))
            write_results(options.out, "cases", known, settings, seconds=time.perf_counter() - began, tables=tables)


if __name__ == "__main__":
    main()

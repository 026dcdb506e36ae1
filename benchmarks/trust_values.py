"""Values for calls: wrong ones by what an argument is, right ones by its name."""

import contextlib
import dataclasses
import inspect
import math
import tempfile
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """One call: a callable by name, the argument that is wrong, what it should be, and the name of the wrong value."""

    function: str
    argument: str
    kind: str
    value: str


# Wrong values, by what the signature says an argument is.


def _torch_with_gradient():
    import torch

    return torch.ones((12, 1), requires_grad=True)


def _half_precision():
    import jax.numpy as jnp

    return jnp.ones((12, 1), jnp.bfloat16)


def _masked():
    import numpy as np

    return np.ma.masked_array(np.ones((12, 1)), np.arange(12)[:, None] % 2 == 0)


def _deleted():
    import jax.numpy as jnp

    array = jnp.ones((12, 1))
    array.delete()
    return array


def _keys():
    import jax

    return jax.random.split(jax.random.key(0), 3)


_NUMPY: dict[str, Callable[[Any], Any]] = {
    "complex numbers": lambda np: np.ones((12, 1), complex),
    "dates": lambda np: np.arange(12).astype("datetime64[D]")[:, None],
    "texts": lambda np: np.array([["a"]] * 12),
    "objects": lambda np: np.array([[object()]] * 12),
    "no rows": lambda np: np.ones((0, 1)),
    "NaN inside": lambda np: np.where(np.arange(12)[:, None] == 3, np.nan, 1.0),
    "infinity inside": lambda np: np.where(np.arange(12)[:, None] == 3, np.inf, 1.0),
    "1e300 inside": lambda np: np.where(np.arange(12)[:, None] == 3, 1e300, 1.0),
    "four axes": lambda np: np.ones((2, 2, 2, 2)),
}
WRONG: dict[str, dict[str, Callable[[], Any]]] = {
    "count": {
        "-1": lambda: -1, "0": lambda: 0, "1.5": lambda: 1.5, "nan": lambda: math.nan, "inf": lambda: math.inf,
        "text": lambda: "3", "list": lambda: [3], "None": lambda: None, "True": lambda: True, "complex": lambda: 1j,
        "10**9": lambda: 10**9, "10**30": lambda: 10**30,
    },
    "number": {
        "nan": lambda: math.nan, "inf": lambda: math.inf, "text": lambda: "x", "list": lambda: [1.0, 2.0],
        "None": lambda: None, "complex": lambda: 1j, "True": lambda: True, "10**400": lambda: 10**400,
    },
    "flag": {"'no'": lambda: "no", "1": lambda: 1, "None": lambda: None, "0.5": lambda: 0.5, "list": lambda: []},
    "choice": {"unknown": lambda: "unknown", "3": lambda: 3, "None": lambda: None, "list": lambda: ["a"]},
    "key": {
        "None": lambda: None, "1.5": lambda: 1.5, "text": lambda: "a", "-1": lambda: -1, "2**40": lambda: 2**40,
        "three keys": _keys, "list": lambda: [0], "True": lambda: True,
    },
    "array": {
        "None": lambda: None, "text": lambda: "a", "dict": lambda: {}, "ragged list": lambda: [[1.0], [1.0, 2.0]],
        "function": lambda: len, "torch with gradient": _torch_with_gradient, "bfloat16": _half_precision, "masked": _masked,
        "set": lambda: {1.0}, "generator": lambda: (float(number) for number in range(12)), "bytearray": lambda: bytearray(b"abc"),
        "deleted": _deleted,
        **{name: (lambda make=make: make(__import__("numpy"))) for name, make in _NUMPY.items()},
    },
    # What no list of batches and no function is either.
    "array or other": {
        "torch with gradient": _torch_with_gradient, "bfloat16": _half_precision, "masked": _masked,
        **{name: (lambda make=_NUMPY[name]: make(__import__("numpy"))) for name in ("complex numbers", "dates", "texts", "objects")},
    },
    "object": {
        "None": lambda: None, "3": lambda: 3, "text": lambda: "x", "list": lambda: [], "class": lambda: dict,
        "function": lambda: len,
    },
    "path": {"3": lambda: 3, "None": lambda: None, "list": lambda: [], "a directory": tempfile.gettempdir,
             "in no directory": lambda: f"{tempfile.gettempdir()}/missing-{uuid.uuid4()}/file"},
    "function": {"3": lambda: 3, "text": lambda: "x", "list": lambda: []},
    "sequence": {"None": lambda: None, "3": lambda: 3, "text": lambda: "ab", "objects": lambda: [object()], "empty": lambda: []},
    "text": {"3": lambda: 3, "None": lambda: None, "list": lambda: ["a"], "bytes": lambda: b"a"},
    "mapping": {"3": lambda: 3, "text": lambda: "x", "list": lambda: [3], "empty": lambda: {}},
}  # fmt: skip


def documented(case: Case) -> bool:
    """What the documentation allows although it looks wrong."""
    name, argument, _, value = case
    if name.startswith("metrics."):
        # "Predictions of NaN give NaN, never a score"; only noise must be a number.
        return value in ("NaN inside", "infinity inside", "1e300 inside") and argument != "noise_variance"
    if value == "True" and argument in ("scale", "lower", "upper", "jitter", "intercept", "slope", "mean", "centre"):
        return True  # as NumPy has it, a truth value is a number where arrays are taken
    if name == "plan" and argument in ("X", "context_points"):
        return value in ("NaN inside", "infinity inside", "1e300 inside")  # only shapes are read
    if name.startswith("plotting.plot_") and argument == "num_samples" and value == "0":
        return True  # none are drawn
    if name == "Posterior().condition" and value == "traced by jit":
        return True  # it works there
    if name in ("operators.partial", "operators.output", "Partial().over") and value in ("10**9", "10**30"):
        return True  # whether there is such a column is known when the operator meets inputs
    if name == "experiments.reproduce" and argument == "out":
        return value in ("a directory", "in no directory")  # it is made
    if name == "studio.write_studio" and argument == "page" and value == "in no directory":
        return True  # it is made
    if name == "botorch.FSPModel" and argument == "steps":
        return value == "0"  # untrained features, the default
    if name == "Observation" and argument == "y" and value == "four axes":
        return True  # the likelihood says what it wants when it is used
    if argument == "also" and value == "empty":
        return True  # no further observations
    if name == "cache_programs" and value in ("in no directory", "a directory"):
        return True  # it is made
    if name.startswith("methods.") and argument == "context_points":
        return True  # looked at when `fit` is called, together with X
    if name.startswith("context.") and argument in ("lower", "upper") and value == "four axes":
        return True  # arrays of one point's shape, as of an image
    if name == "methods.MAP" and argument == "checkpoint":
        return value in ("a directory", "in no directory")  # `fit` refuses it, before it trains
    if argument in ("centre", "scale", "output_scale") and value == "four axes":
        return name == "as_model"  # as inputs of any shape
    if argument in ("X", "rows", "x", "context_points", "guard_points") and value == "four axes":
        return True  # inputs of any shape (n, ...)
    if name.endswith("load") and argument in ("mean", "model"):
        return value == "None"
    return False


class World(NamedTuple):
    """Right values by the name of an argument, and example objects whose methods are called."""

    values: dict[str, Any]
    examples: dict[str, Any]


def world(_kept: list = []) -> World:  # noqa: B006 - built once in a process
    if _kept:
        return _kept[0]
    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    X = np.linspace(-1, 1, 12)[:, None]
    y = np.sin(3 * X[:, 0])
    prior, likelihood, context = (
        fsp.Prior(RBF(lengthscale=0.5)),
        fsp.likelihoods.Gaussian(0.1),
        fsp.context.Uniform([-1.5], [1.5]),
    )
    network = eqx.nn.MLP(1, 1, 4, 1, activation=jnp.tanh, key=jr.key(0))
    model = fsp.as_model(network)
    posterior = fsp.laplace(model, prior, likelihood, X, y, context_points=np.linspace(-1.5, 1.5, 9)[:, None])
    folder = Path(tempfile.mkdtemp())
    fsp.save(folder / "saved.safetensors", posterior)
    probabilities = np.full((12, 2), 0.5)
    labels = dataclasses.replace(posterior, likelihood=fsp.likelihoods.Bernoulli())
    plane = np.stack([X[:, 0], X[::-1, 0] ** 2], axis=1)
    wide = fsp.as_model(eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jr.key(0)))
    field = dataclasses.replace(
        posterior, model=wide, prior=fsp.Prior(RBF(), num_outputs=2), scale=jnp.ones((1, wide.num_params)) / 10,
        shift=jnp.zeros(wide.num_params), context_points=jnp.asarray(plane, jnp.float32),
        **({"information": jnp.ones(1)} if hasattr(posterior, "information") else {}),
    )  # fmt: skip
    values = {
        "X": X, "y": y, "x": X[:3], "prior": prior, "likelihood": likelihood, "context": context, "model": model, "key": jr.key(0),
        "network": network, "posterior": posterior, "context_points": X, "rows": X, "lower": [-1.0], "upper": [1.0],
        "samplers": [context], "kernel": RBF(), "hidden": [4], "num_units": 4, "num_points": 4, "num_classes": 2,
        "variance": np.full(12, 0.1), "std": np.full(12, 0.3), "mean": y, "noise_variance": 0.1, "labels": np.arange(12) % 2,
        "probabilities": probabilities, "logits": np.zeros((2, 12, 2)), "in_scores": y, "out_scores": y + 1, "slope": [1.0],
        "function": lambda output, target: -jnp.sum((output - target) ** 2), "potential": RBF(), "path": folder / "file.safetensors",
        "directory": folder / "cache", "factor": 2.0, "squares": y**2 + 0.1, "X_new": X[:2], "y_new": y[:2], "posteriors": [posterior],
        "operator": fsp.operators.partial(0) if hasattr(fsp, "operators") else None,
        "given": {}, "mesh": None, "page": folder / "studio.html", "direction": [1.0], "weights": [1.0],
        "name": "a name", "experiment": _experiment(), "kind": "a kind", "content": {}, "bounds": _tensor([[-1.0], [1.0]]),
        "train_X": _tensor(X), "train_Y": _tensor(y[:, None]), "Y": _tensor(y[:2, None]), "idcs": [0], "table": None, "columns": (0,), "numbers": (0,),
        "plane": plane, "field": field, "classes": dataclasses.replace(field, likelihood=fsp.likelihoods.Categorical(2)),
    }  # fmt: skip
    built: dict[str, Any] = {
        "Posterior": posterior, "Labels": labels, "Prior": prior, "Uniform": context,
        "Halton": fsp.context.Halton([-1.0], [1.0]), "Grid": fsp.context.Grid([-1.0], [1.0]), "Data": fsp.context.Data(X),
        "Segments": fsp.context.Segments(X) if hasattr(fsp.context, "Segments") else None,
        "Mixture": fsp.context.around(X),
    }  # fmt: skip
    examples = {name: example for name, example in built.items() if example is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples["FSPRegressor"] = fsp.FSPRegressor(**_QUICK_ESTIMATOR).fit(X, y)
        examples["FSPClassifier"] = fsp.FSPClassifier(**_QUICK_ESTIMATOR).fit(X, values["labels"])
        # Older trees have no such rooms.
        with contextlib.suppress(ImportError):
            examples["FSPModel"] = _surrogate(values["train_X"], values["train_Y"])
        with contextlib.suppress(ImportError):
            examples["MAP"] = _point_estimate()
            fitted = examples["MAP"].fit(model, X, y, likelihood, key=jr.key(0))
            examples["LinearisedPosterior"] = fitted
            examples["LabelsOfMethod"] = dataclasses.replace(fitted, likelihood=fsp.likelihoods.Bernoulli())
    if values["operator"] is not None:
        examples["Partial"] = values["operator"]
    _kept.append(World(values, examples))
    return _kept[0]


_QUICK_ESTIMATOR = {"network": [4], "steps": 1, "num_context": 8, "fit_prior": False, "random_state": 0}
# Short work where a wrong value is let through.
_QUICK = {
    "steps": 1,
    "progress": False,
    "num_context": 8,
    "num_samples": 2,
    "restarts": 1,
    "max_steps": 1,
    "num_posterior_context": 8,
}
# Right values for a name that means something else in one callable.
_SPECIAL: dict[str, dict[str, Any]] = {
    "botorch.FSPModel": {"network": lambda: [4], "prior": lambda: world_prior(), "noise": lambda: 0.1, "num_context": lambda: 20},
    "FSPModel().posterior": {"X": lambda: world().values["train_X"]},
    "FSPModel().condition_on_observations": {"X": lambda: world().values["train_X"][:2]},
    "botorch.check_model": {"model": lambda: world().examples["FSPModel"]},
    "experiments.get": {"name": lambda: "sine"},
    "datasets.fetch": {"name": lambda: "ocean"}, "datasets.path": {"name": lambda: "ocean"},
    "datasets.verify": {"name": lambda: "ocean"}, "datasets.load": {"name": lambda: "ocean"},
    "datasets.entry": {"name": lambda: "ocean"},
    "experiments.reproduce": {"out": lambda: world().values["path"].parent, "preset": lambda: "none of them"},
    "FSPClassifier().fit": {"y": lambda: world().values["labels"]},
    "MAP().fit": {"steps": lambda: 1}, "studio.linked": {"name": lambda: "main"},
    "operators.linear": {"function": lambda: lambda f: f}, "operators.nonlinear": {"function": lambda: lambda f: f},
    "Partial().map": {"function": lambda: abs},
    "load": {"path": lambda: world().values["path"].with_name("saved.safetensors"), "model": lambda: world().values["network"]},
    "Prior().covariance": {"y": lambda: world().values["x"]},
    "dirichlet_labels": {"y": lambda: world().values["labels"]},
    "plotting.plot_history": {"history": lambda: _history()},
    "plotting.plot_reliability": {"probabilities": lambda: world().values["probabilities"]},
    "methods.by_name": {"name": lambda: "map"},
    "laplace": {"y": lambda: world().values["y"]},
    "train": {"y": lambda: world().values["y"]},
    "kernels.Helmholtz": {"potential": lambda: world().values["kernel"]},
    "plotting.plot_classification": {
        "posterior": lambda: world().values["classes"], "X": lambda: world().values["plane"],
        "y": lambda: world().values["labels"], "resolution": lambda: 3,
    },
    "plotting.plot_vector_field": {
        "posterior": lambda: world().values["field"], "X": lambda: world().values["plane"],
        "y": lambda: world().values["logits"][0], "resolution": lambda: 3,
    },
}  # fmt: skip


def _point_estimate():
    from fsplaplace.methods import MAP

    return MAP(steps=1)


def _tensor(values):
    try:
        import torch
    except ImportError:
        return None
    return torch.as_tensor(values, dtype=torch.float64)


def _surrogate(X, Y):
    from fsplaplace.botorch import FSPModel

    return FSPModel(X, Y, network=[4], prior=world_prior(), noise=0.1, num_context=20)


def world_prior():
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    return fsp.Prior(RBF(lengthscale=0.5))


def _experiment():
    try:
        from fsplaplace.experiments import get
    except ImportError:
        return None
    return get("sine")


def _history():
    import jax.numpy as jnp

    import fsplaplace as fsp

    return fsp.History(jnp.ones(3), jnp.ones(3), jnp.zeros(0, int), jnp.zeros(0))


def right_arguments(name: str, function: Callable) -> dict[str, Any]:
    """What a call needs: required arguments by name, and short work."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name in _SPECIAL.get(name, {}):
            found[parameter.name] = _SPECIAL[name][parameter.name]()
        elif parameter.name in _QUICK and not is_estimator(function):
            found[parameter.name] = _QUICK[parameter.name]
        elif parameter.default is parameter.empty:
            if parameter.name not in world().values:
                raise LookupError(f"trust.py: {name} requires {parameter.name!r}; add a right value to world()")
            found[parameter.name] = world().values[parameter.name]
    return _QUICK_ESTIMATOR | found if is_estimator(function) else found


def is_estimator(function: Callable) -> bool:
    return inspect.isclass(function) and hasattr(function, "fit") and hasattr(function, "get_params")

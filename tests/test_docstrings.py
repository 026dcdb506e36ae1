"""Docstrings: every public name has one, examples in them are true, and the API reference misses none of them."""

import doctest
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF
from jax.experimental.compilation_cache import compilation_cache

import fsplaplace as fsp

_SITE = Path(__file__).parent.parent / "docs/site"
# Settings of the process that an example changes.
_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """What the examples of the reference start from; the first page of the reference shows it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20, 1)).astype(np.float32)
    prior, context = fsp.Prior(RBF(lengthscale=0.4)), fsp.context.Uniform(-1.5, 1.5)
    names = {
        "np": np, "jnp": jnp, "jr": jr, "RBF": RBF, "fsp": fsp, "X": X, "y": np.sin(4 * X[:, 0]), "prior": prior, "context": context,
        "likelihood": fsp.likelihoods.Gaussian(scale=0.1), "network": fsp.mlp([20], prior=prior, context=context, key=jr.key(0)),
        "directory": tmp_path_factory.mktemp("examples"),
    }  # fmt: skip
    names["model"] = fsp.as_model(names["network"])
    names["posterior"] = fsp.laplace(names["model"], prior, names["likelihood"], X, names["y"])
    return names


def modules():
    found = [info.name for info in pkgutil.walk_packages(fsp.__path__, "fsplaplace.")]
    with_examples = []
    for name in found:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and ">>> " in Path(spec.origin).read_text(encoding="utf-8"):
            with_examples.append(name)
    return with_examples


@pytest.mark.parametrize("name", modules())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_examples_of_docstrings_are_true(name, space, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    tests = [test for test in finder.find(module, name) if test.examples]
    assert tests
    for test in tests:
        test.globs = vars(module) | space
        runner.run(test)
    assert runner.failures == 0


@pytest.fixture(autouse=True)
def same_settings():
    before = {name: getattr(jax.config, name) for name in _SETTINGS}
    yield
    if any(getattr(jax.config, name) != value for name, value in before.items()):
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(_SITE))
    yield importlib.import_module("reference")
    sys.modules.pop("reference", None)


def test_no_public_name_is_missing_from_the_reference(reference, tmp_path):
    pytest.importorskip("torch")  # the reference covers the room for BoTorch, too
    pages = reference.write_pages(tmp_path)
    text = {page: (tmp_path / page).read_text(encoding="utf-8") for page in pages}
    for name in fsp.__dir__():
        value = getattr(fsp, name)
        if not name.startswith("_") and not inspect.ismodule(value) and name not in ("TYPE_CHECKING", "Any"):
            assert f"`fsp.{name}`" in text["index.md"], name
    for room in reference.rooms():
        short = room.__name__.removeprefix("fsplaplace.")
        for name in getattr(room, "__all__", reference.public_names(room)):
            value = getattr(room, name)
            assert f"{room.__name__}.{name}" in text[f"{short}.md"], name
            assert inspect.isclass(value) is False or value.__doc__, f"{name} has no docstring"
            assert not inspect.isfunction(value) or value.__doc__, f"{name} has no docstring"


def test_functions_and_estimators_that_users_call_have_an_example():
    public = {name: getattr(fsp, name) for name in fsp.__dir__() if not name.startswith("_")}
    called = {name for name, value in public.items() if inspect.isfunction(value)} | {"FSPRegressor", "FSPClassifier"}
    assert not {name for name in called if ">>> " not in (public[name].__doc__ or "")}

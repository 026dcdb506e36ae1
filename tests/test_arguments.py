"""Arguments: every public function is checked, and the rule of each annotation refuses and accepts what it should."""

import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF
from numpy.typing import ArrayLike

import fsplaplace as fsp
from fsplaplace.arguments import RANGES, KeyLike, accepts, as_key, checked

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (int, [3, np.int64(3), np.int32(3), 1e4, jnp.asarray(3)], [1.5, math.nan, math.inf, "3", True, None, [3], 1j]),
        (float, [3, 0.5, np.float32(0.5), jnp.asarray(0.5)], [math.nan, math.inf, "x", True, None, [0.5], 1j, 10**400]),
        (bool, [True, np.bool_(False)], ["no", 1, 0, None, 0.0]),
        (int | None, [None, 3], ["3"]),
        (Literal["a", "b"], ["a"], ["c", 3, None, ["a"]]),
        (str, ["a"], [b"a", 3]),
        (str | Path, ["a", Path("a")], [3, b"a"]),
        (Sequence[int], [[1, 2], (1,), np.array([1, 2])], ["ab", [1.5], 3, {1: 2}, np.ones((2, 2))]),
        (Mapping[str, int], [{}], [[], 3]),
        (tuple[float, float], [(1.0, 0.5), [1, 2]], [1.0, (1.0,), (1, 2, 3), ("a", "b")]),
        (Callable, [len], [3]),
        (jax.Array, [np.ones(3), [1.0, 2.0]], ["a", None, {}]),
    ],
)  # fmt: skip
def test_an_annotation_says_what_is_accepted(annotation, right, wrong):
    assert all(accepts(annotation, value) for value in right)
    assert not any(accepts(annotation, value) for value in wrong)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones(3, complex), "X has dtype complex128; pass numbers"),
        (np.arange(3).astype("datetime64[D]"), r"X has dtype datetime64\[D\]; pass numbers, for instance days since"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "X has masked values; fill them"),
        (np.array(["a"]), "X has dtype <U1, words such as 'a'; pass numbers"),
        ([[1.0], [1.0, 2.0]], "X is a list that NumPy cannot read"),
        (
            np.zeros(3, [("a", "f8"), ("b", "f8")]),
            "X is a structured array with the fields 'a', 'b'; pass its columns as one array",
        ),
        (jnp.ones(3, jnp.bfloat16), "X has dtype bfloat16; pass float32 or float64"),
        (jnp.ones(3, jnp.int4), "X has dtype int4; pass float32 or float64"),
        (bytearray(b"abc"), "X is a bytearray; pass numbers"),
        (np.ndarray, "X is the class ndarray; pass numbers"),
        (jr.key(0), "X is a PRNGKeyArray that NumPy cannot read"),
    ],
)
def test_arrays_that_would_lose_something_are_refused(value, message):
    with pytest.raises((TypeError, ValueError), match=rf"function: {message}"):
        function(value, key=0)


@pytest.mark.parametrize(
    "values",
    [np.arange(3.0, dtype=">f8"), np.arange(3, dtype=">i4"), np.arange(3, dtype=np.longdouble), memoryview(np.arange(3.0))],
    ids=["big-endian floats", "big-endian integers", "eighty bits", "a view of memory"],
)  # fmt: skip
def test_numbers_that_jax_cannot_read_as_they_are_come_in_as_it_can(values):
    np.testing.assert_array_equal(jnp.asarray(function(values, key=0)[0]), [0.0, 1.0, 2.0])


def test_whole_numbers_beyond_32_bits_are_not_cut():
    """JAX would keep the last 32 bits of them: scores of other numbers."""
    whole = np.array([2**33, 2**33 + 2**31, 2**34])
    rough = whole + 1e9 * np.array([1.0, -1.0, 1.0])
    np.testing.assert_allclose(fsp.metrics.rmse(whole, rough), 1e9, rtol=1e-4)
    np.testing.assert_allclose(fsp.metrics.rmse(whole.astype(np.uint64), rough), 1e9, rtol=1e-4)
    np.testing.assert_array_equal(fsp.metrics.auroc(np.array([2**33]), np.array([2**33 + 2**32])), 1.0)
    np.testing.assert_allclose(fsp.context.Data(whole[:, None]).sample(3, key=0).sum(), whole.sum(), rtol=1e-6)


def test_a_torch_tensor_with_gradient_is_refused_by_name():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"X is a torch tensor that requires grad; pass its .detach\(\)"):
        function(torch.ones(3, requires_grad=True), key=0)


@checked
def function(X: ArrayLike, *, key: KeyLike, steps: int = 1, mode: Literal["a", "b"] = "a"):
    """One of each."""
    return X, key, steps


def test_numbers_come_in_as_what_they_stand_for():
    _, key, steps = function([1.0], key=np.int64(3), steps=np.float64(1e3))
    assert type(steps) is int
    np.testing.assert_array_equal(jr.key_data(key), jr.key_data(jr.key(3)))


@pytest.mark.parametrize("key", [None, 1.5, "a", -1, 2**40, True, [0], np.zeros(3), jr.split(jr.key(0), 2)])
def test_what_is_no_key_is_refused(key):
    with pytest.raises((TypeError, ValueError), match=r"function: key is .*; pass a"):
        function([1.0], key=key)


def test_keys_of_both_kinds_are_taken():
    for key in (jr.key(0), jr.PRNGKey(0)):
        np.testing.assert_array_equal(jr.key_data(as_key(key)), jr.key_data(key))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "function: steps is 0; pass 1 or more"),
        ({"steps": math.inf}, "function: steps is inf; pass a whole number, 1 or more"),
        ({"mode": "c"}, "function: mode is 'c'; pass one of 'a', 'b'"),
    ],
)
def test_errors_name_function_argument_value_and_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        function([1.0], key=0, **arguments)


def test_several_positional_numbers_are_checked_one_by_one():
    from fsplaplace import operators

    with pytest.raises(TypeError, match=r"partial: columns is .*; pass a list, each a whole number|partial: columns"):
        operators.partial(0, "1")
    assert operators.partial(np.int64(1)).columns == (1,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: function([1.0], key=0, steps=10**30), r"steps is 10{30}; pass 1 or more, at most 2147483647"),
        (lambda: fsp.context.Uniform([-1.0], [1.0]).sample(10**12, key=0), r"num_points is .*, at most 2147483647"),
        (lambda: fsp.context.Uniform([-1.0] * 50, [1.0] * 50).sample(10**9, key=0), r"takes .* GiB; at most \d+ fit in"),
        (lambda: fsp.Prior(RBF()).sample(np.zeros((3, 1)), key=0, num_samples=2**31 - 1), r"num_samples is .* at most \d+ fit"),
        (lambda: fsp.mlp([10**9], prior=fsp.Prior(RBF()), context=fsp.context.Uniform([-1.0], [1.0]), key=0), r"mlp: a width of hidden is 10{9}, .* at most \d+ fit"),
        (lambda: fsp.operators.integral(0.0, 1.0, nodes=10**9), r"nodes is 1000000000; pass 1 to 1000"),
    ],
    ids=["steps", "points", "memory", "draws", "units", "nodes"],
)  # fmt: skip
def test_counts_that_no_machine_holds_are_refused_with_what_fits(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_function_that_is_not_traceable_says_so():
    with pytest.raises(TypeError, match=r"X is traced by jax.jit .* call it outside"):
        jax.jit(lambda X: function(X, key=0)[0])(np.ones(3))


def test_missing_and_unknown_arguments_are_python_s_own_errors():
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'key'"):
        function([1.0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'stpes'"):
        function([1.0], key=0, stpes=3)


def test_every_public_callable_is_checked(monkeypatch):
    """A new function cannot forget: it is found by name, and must carry the mark of `checked`."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    trust = importlib.import_module("trust")
    missing = []
    for name, value in trust.module_callables().items():
        if inspect.isclass(value):
            own = any(getattr(vars(base).get("__init__"), "is_checked", False) for base in value.__mro__)
            fields = any("__check_init__" in vars(base) for base in value.__mro__)
            estimator = hasattr(value, "get_params")
            if not (own or fields or estimator or not inspect.signature(value).parameters):
                missing.append(name)
        elif inspect.signature(value).parameters and not getattr(value, "is_checked", False):
            missing.append(name)
    assert missing == ["means.Linear"], "it takes wrapped parameters, too, and checks them itself"


def test_ranges_are_of_arguments_that_exist():
    folder = Path(__file__).parents[1] / "src" / "fsplaplace"
    text = "".join(path.read_text() for path in folder.rglob("*.py") if path.name != "_ranges.py")
    assert [name for name in RANGES if f"{name}:" not in text and f"{name}=" not in text] == []

"""Rows over devices and processes: the posterior is the one of a single device."""

import jax
import numpy as np
import pytest
from parallel.fit import launch

from fsplaplace import parallel


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """The same fit on one device, on eight of one process, and on four of each of two processes."""
    folder = tmp_path_factory.mktemp("fits")
    layouts = {"one": (1, 1), "eight": (8, 1), "two processes": (4, 2)}
    started = {
        name: launch(folder / f"{name}.npz", devices=layout[0], processes=layout[1]) for name, layout in layouts.items()
    }
    for name, processes in started.items():
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, f"{name}: {errors}"
    return {name: np.load(folder / f"{name}.npz") for name in layouts}


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["eight", "two processes"])
def test_devices_and_processes_give_the_posterior_of_one_device(fits, layout):
    assert int(fits["one"]["devices"]) == 1
    assert int(fits[layout]["devices"]) == 8
    for name in ("mean", "variance", "evidence"):
        np.testing.assert_allclose(fits[layout][name], fits["one"][name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["eight", "two processes"])
def test_training_on_devices_and_processes_gives_the_weights_of_one_device(fits, layout):
    np.testing.assert_allclose(fits[layout]["weights"], fits["one"]["weights"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["one", "eight", "two processes"])
def test_a_checkpoint_of_one_device_continues_on_others(fits, layout):
    np.testing.assert_allclose(fits[layout]["resumed"], fits["one"]["weights"], rtol=1e-5, atol=1e-5)


def test_a_mesh_of_one_device_changes_nothing():
    mesh = jax.make_mesh((1,), ("rows",))
    rows = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    assert parallel.num_shards() == 1
    with parallel.use_mesh(mesh):
        np.testing.assert_array_equal(parallel.gather(parallel.shard_rows(rows)), rows)
        np.testing.assert_array_equal(parallel.gather(parallel.replicate({"a": rows}))["a"], rows)
    assert parallel.shard_rows(rows) is rows


def test_what_is_not_a_mesh_is_refused():
    with (
        pytest.raises(TypeError, match=r"use_mesh: mesh must be a Mesh, but got int"),
        parallel.use_mesh(8),
    ):
        pass

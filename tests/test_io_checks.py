"""Files that were damaged, forged or are of another kind: our own error for each, before anything is built of them."""

import json
import struct
import time

import equinox as eqx
import gpjax.kernels as gpk
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import fsplaplace as fsp
from fsplaplace import io
from fsplaplace.io import FileFormatError, load, save

POINTS = np.linspace(-1, 1, 7)[:, None].astype(np.float32)


def network():
    return fsp.as_model(eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, key=jr.key(0)))


@pytest.fixture(scope="module")
def posterior():
    """A fitted posterior, with all its diagnostics."""
    X = np.random.default_rng(0).uniform(-1, 1, (8, 1))
    prior, likelihood = fsp.Prior(gpk.RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1)
    return fsp.laplace(network(), prior, likelihood, X, np.sin(X[:, 0]), context_points=POINTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "posterior.safetensors"


def test_a_newer_format_is_refused_with_the_version(posterior, path):
    save(path, posterior)
    rewrite(path, lambda header: header | {"format": 2, "version": "9.0"})
    with pytest.raises(FileFormatError, match=r"written by fsplaplace 9\.0 in format 2.*upgrade fsplaplace"):
        load(path, network())


def assert_predicts_the_same(loaded, saved):
    np.testing.assert_array_equal(loaded.predict(POINTS).mean, saved.predict(POINTS).mean)


def rewrite(path, change):
    """A file with a changed header and a right checksum: what a hand, and not an accident, makes."""
    tensors = load_file(path)
    header = change(read_header(path))
    header.pop("checksum", None)
    header["checksum"] = io.checksum(header, tensors)
    io.write_tensors(path, tensors, header)


def read_header(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["header"])


def assert_our_error_or_whole(path, model):
    try:
        load(path, model).predict(POINTS)
    except FileFormatError:
        return 1
    return 0


def test_damaged_bytes_give_our_error_only(posterior, path):
    save(path, posterior)
    whole, generator, model = path.read_bytes(), np.random.default_rng(0), network()
    refused = 0
    for trial in range(300):
        data = bytearray(whole)
        match trial % 4:
            case 0:
                data = data[: generator.integers(len(data))]
            case 1:
                data = bytearray(generator.bytes(int(generator.integers(1, 400))))
            case 2:
                data[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))
            case 3:
                start = int(generator.integers(min(len(data), 4000)))
                data[start : start + 8] = generator.bytes(8)
        path.write_bytes(bytes(data))
        refused += assert_our_error_or_whole(path, model)
    assert refused == 300


def places(node, path=()):
    """Every place of a JSON document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(header, place, value):
    header = json.loads(json.dumps(header))
    node = header
    for key in place[:-1]:
        node = node[key]
    if value is None and isinstance(node, dict):
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return header


@pytest.mark.slow
def test_flipped_header_fields_give_our_error_only(posterior, path):
    save(path, posterior)
    header, generator, model = read_header(path), np.random.default_rng(1), network()
    everywhere = [place for place in places(header) if place]
    values = [None, -1, 10**12, 1.5, "x", [], {}, True, {"tuple": []}, {"array": "x"}, {"slice": [0, 1, 2]}]
    refused = 0
    for _ in range(300):
        place = everywhere[generator.integers(len(everywhere))]
        rewrite(path, lambda _, place=place: changed(header, place, values[generator.integers(len(values))]))
        refused += assert_our_error_or_whole(path, model)
    assert refused > 200


def test_wrong_shapes_and_missing_arrays_give_our_error(posterior, path):
    save(path, posterior)
    tensors, header = load_file(path), read_header(path)
    model = network()
    for name in tensors:
        for altered in (tensors[name].reshape(-1)[:0], tensors[name][None], tensors[name].astype(np.int8), None):
            others = {key: value for key, value in tensors.items() if key != name}
            io.write_tensors(path, others if altered is None else others | {name: altered}, header)
            with pytest.raises(FileFormatError):
                load(path, model)


def test_a_deeply_nested_header_gives_our_error(posterior, path):
    save(path, posterior)
    tensors = load_file(path)
    header = json.dumps({"kind": "fsplaplace object"})[:-1] + ', "object": ' + "[" * 100_000 + "]" * 100_000 + "}"
    save_file(tensors, path, metadata={"header": header})
    with pytest.raises(FileFormatError):
        load(path, network())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("diagnostics", "missed_as_noise"), 2**31, r"diagnostics\.missed_as_noise is 2147483648 \(int\)"),
        (("diagnostics", "rank"), "many", r"diagnostics\.rank is 'many' \(str\)"),
        (("diagnostics", "verdict"), 3, r"diagnostics\.verdict is 3"),
        (("prior", "num_outputs"), 1.5, r"prior\.num_outputs is 1\.5"),
        (("scale",), "a text", r"scale is 'a text' \(str\)"),
    ],
)
def test_a_field_of_another_type_is_refused_before_anything_is_built_of_it(posterior, path, place, value, message):
    """An integer for a truth value once multiplied a text: ten kilobytes that asked for gigabytes."""
    save(path, posterior)
    inside = [part for name in place for part in ("fields", name)]
    rewrite(path, lambda header: changed(header, ("object", *inside), value))
    began = time.perf_counter()
    with pytest.raises(FileFormatError, match=message):
        load(path, network())
    assert time.perf_counter() - began < 20


def test_sizes_that_do_not_go_together_are_refused_by_field(posterior, path):
    save(path, eqx.tree_at(lambda tree: tree.information, posterior, jnp.ones(2)))
    with pytest.raises(FileFormatError, match=r"information (is an array float32|has shape)"):
        load(path, network())


def test_what_nobody_knows_is_refused(posterior, path):
    save(path, posterior)
    header = read_header(path)
    for place in (
        ("extra",),
        ("object", "extra"),
        ("object", "fields", "extra"),
        ("object", "fields", "model", "model", "extra"),
    ):
        rewrite(path, lambda _, place=place: changed(header, place, 3))
        with pytest.raises(FileFormatError, match=r"unknown|known way"):
            load(path, network())
    save(path, posterior)
    tensors = load_file(path) | {"99999 more": np.zeros(3)}
    header = {name: value for name, value in read_header(path).items() if name != "checksum"}
    io.write_tensors(path, tensors, header | {"checksum": io.checksum(header, tensors)})
    with pytest.raises(FileFormatError, match=r"arrays that nothing refers to, such as '99999 more'"):
        load(path, network())


def test_numbers_that_are_not_finite_are_neither_saved_nor_loaded(posterior, path):
    broken = eqx.tree_at(lambda tree: tree.shift, posterior, posterior.shift.at[0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"save: shift has NaN or infinite values"):
        save(path, broken)
    assert not path.exists()
    save(path, posterior)
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("shift", "scale", "context_points"))]:
        altered = tensors | {name: np.full_like(tensors[name], np.inf)}
        header = {key: value for key, value in read_header(path).items() if key != "checksum"}
        io.write_tensors(path, altered, header | {"checksum": io.checksum(header, altered)})
        with pytest.raises(FileFormatError, match="NaN or infinite values"):
            load(path, network())
        io.write_tensors(path, tensors, header | {"checksum": io.checksum(header, tensors)})


@pytest.mark.parametrize("change", ["double scale", "1e30"])
def test_numbers_of_another_width_or_size_are_refused(posterior, path, change):
    """Found by the campaign: directions in float64 for float32 weights, and numbers whose squares are infinite."""
    save(path, posterior)
    tensors, header = load_file(path), read_header(path)
    header.pop("checksum")
    name = next(name for name in tensors if name.endswith(" scale"))
    tensors[name] = tensors[name].astype(np.float64) if change == "double scale" else tensors[name] * np.float32(1e30)
    header["object"]["fields"]["scale"]["dtype"] = str(tensors[name].dtype)
    io.write_tensors(path, tensors, header | {"checksum": io.checksum(header, tensors)})
    with pytest.raises(FileFormatError, match=r"scale has (dtype float64|values up to)"):
        load(path, network())


def test_a_signed_file_is_read_with_its_secret_only(posterior, path):
    save(path, posterior, secret="one")
    assert_predicts_the_same(load(path, network(), secret=b"one"), posterior)
    assert_predicts_the_same(load(path, network()), posterior)
    with pytest.raises(FileFormatError, match="signed with another secret, or changed since"):
        load(path, network(), secret="two")
    # Who can write the file can repair the checksum, but not the signature.
    rewrite(path, lambda header: changed(header, ("object", "fields", "diagnostics", "fields", "solver"), "other"))
    assert load(path, network()).diagnostics.solver == "other"
    with pytest.raises(FileFormatError, match="signed with another secret, or changed since"):
        load(path, network(), secret="one")
    save(path, posterior)
    with pytest.raises(FileFormatError, match="is not signed"):
        load(path, network(), secret="one")
    with pytest.raises(ValueError, match="save: secret is empty"):
        save(path, posterior, secret="")


@pytest.mark.parametrize("change", ["text", "nan", "outputs", "dtype"])
def test_a_posterior_of_a_method_is_checked_too(path, change):
    """Text in place of an array, NaN, a number of outputs that asks for gigabytes: none is loaded."""
    from fsplaplace.methods import by_name

    X = np.linspace(-1, 1, 6)[:, None]
    prior, likelihood = fsp.Prior(gpk.RBF()), fsp.likelihoods.Gaussian(0.1)
    fitted = by_name("gp", tune=False).fit(network(), X, np.sin(X[:, 0]), likelihood, key=0, prior=prior)
    save(path, fitted)
    fields = ("object", "fields")
    if change == "nan":
        tensors = load_file(path)
        name = next(name for name in tensors if name.endswith("coefficients"))
        tensors[name] = np.full_like(tensors[name], np.nan)
        header = {key: value for key, value in read_header(path).items() if key != "checksum"}
        io.write_tensors(path, tensors, header | {"checksum": io.checksum(header, tensors)})
    else:
        place, value = {
            "text": ((*fields, "coefficients"), "text"),
            "outputs": ((*fields, "prior", "fields", "num_outputs"), 10**9),
            "dtype": ((*fields, "dtype"), "complex64"),
        }[change]
        rewrite(path, lambda header: changed(header, place, value))
    with pytest.raises(FileFormatError):
        load(path)


def test_a_class_that_is_unknown_on_load_is_named(posterior, path):
    save(path, posterior)
    rewrite(path, lambda header: json.loads(json.dumps(header).replace("gpjax.kernels.RBF", "elsewhere.Kernel")))
    with pytest.raises(FileFormatError, match=r"'elsewhere\.Kernel', a class this process does not know; pass prior="):
        load(path, network())
    assert load(path, network(), prior=posterior.prior).rank == posterior.rank

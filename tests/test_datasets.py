import gzip
import hashlib
import http.server
import os
import socket
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fsplaplace import datasets
from fsplaplace.datasets import DatasetUnavailableError, _catalogue, _store

MIRROR = os.environ.get("FSPLAPLACE_DATA")
needs_mirror = pytest.mark.skipif(not MIRROR, reason="FSPLAPLACE_DATA names no mirror of the data files")
TABLE = b"a,b,target\n0.1,2,3\n4,5,-6.5\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    directory = tmp_path / "mirror"
    directory.mkdir()
    monkeypatch.setenv("FSPLAPLACE_DATA", str(directory))
    return directory


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "fsplaplace"


@pytest.fixture
def no_mirror(monkeypatch):
    monkeypatch.delenv("FSPLAPLACE_DATA", raising=False)


@pytest.fixture
def register(monkeypatch):
    """Put a data set "fake" with these files into the catalogue."""

    def add(contents: dict[str, bytes], *, reader="table", url=None, **options):
        files = tuple(
            _catalogue.File(path, sha256(content), url and f"{url}/{path}", **options)
            for path, content in contents.items()
        )
        entry = _catalogue.Entry(reader, files, "the source", "target", "units", "description", "a note")
        monkeypatch.setitem(_catalogue.CATALOGUE, "fake", entry)

    return add


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server on this machine: its address and the directory it serves."""
    root = tmp_path / "served"
    root.mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(root))

        def log_message(self, format, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", root
        running.shutdown()
        thread.join()


def write(directory: Path, path: str, content: bytes) -> Path:
    location = directory / path
    location.parent.mkdir(parents=True, exist_ok=True)
    location.write_bytes(content)
    return location


# --- The mirror


def test_a_table_is_read_in_full_precision_and_cannot_be_changed(mirror, register):
    register({"uci/fake.csv": TABLE})
    write(mirror, "uci/fake.csv", TABLE)
    data = datasets.load("fake")
    assert data.X.tolist() == [[0.1, 2.0], [4.0, 5.0]]
    assert data.y.tolist() == [3.0, -6.5]
    assert data.X.dtype == data.y.dtype == np.float64
    assert (data.feature_names, data.target_name, data.note) == (("a", "b"), "target", "a note")
    assert data.X_test is None
    assert data.y_test is None
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 1.0
    with pytest.raises(AttributeError):
        data.X = np.zeros(2)


def test_a_corrupted_mirror_file_is_refused_with_both_hashes(mirror, register):
    register({"uci/fake.csv": TABLE})
    write(mirror, "uci/fake.csv", TABLE + b"7,8,9\n")
    for call in (datasets.load, datasets.fetch, datasets.verify):
        with pytest.raises(DatasetUnavailableError) as caught:
            call("fake")
        assert sha256(TABLE) in str(caught.value)
        assert sha256(TABLE + b"7,8,9\n") in str(caught.value)
        assert str(mirror / "uci/fake.csv") in str(caught.value)


def test_a_corrupted_mirror_file_is_refused_even_if_it_could_be_downloaded(mirror, register, server):
    url, root = server
    register({"fake.csv": TABLE}, url=url)
    write(root, "fake.csv", TABLE)
    write(mirror, "fake.csv", TABLE[:-3])
    with pytest.raises(DatasetUnavailableError, match="is damaged or another version"):
        datasets.load("fake")


def test_a_file_is_hashed_once_per_process_until_it_changes(mirror, register, monkeypatch):
    register({"uci/fake.csv": TABLE})
    location = write(mirror, "uci/fake.csv", TABLE)
    hashed = []
    original = _store._sha256
    monkeypatch.setattr(_store, "_sha256", lambda path: hashed.append(path) or original(path))
    datasets.load("fake")
    datasets.load("fake")
    assert hashed == [location]
    location.write_bytes(b"changed")
    with pytest.raises(DatasetUnavailableError):
        datasets.load("fake")
    assert hashed == [location, location]


def test_verify_hashes_anew_and_returns_what_it_saw(mirror, register):
    register({"uci/fake.csv": TABLE})
    location = write(mirror, "uci/fake.csv", TABLE)
    assert datasets.verify("fake") == {"uci/fake.csv": sha256(TABLE)}
    before = location.stat()
    location.write_bytes(TABLE[::-1])  # same size; with the old time put back only a new hash can notice
    os.utime(location, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DatasetUnavailableError, match="damaged"):
        datasets.verify("fake")


def test_a_converted_table_without_mirror_says_that_only_a_mirror_has_it(no_mirror):
    for call in (datasets.load, datasets.fetch, datasets.path, datasets.verify):
        with pytest.raises(DatasetUnavailableError) as caught:
            call("boston")
        message = str(caught.value)
        assert "exists only in a mirror" in message
        assert "set FSPLAPLACE_DATA to a directory that holds uci/boston.csv.gz" in message
        assert "lib.stat.cmu.edu" in message


def test_a_mirror_that_lacks_a_converted_table_is_named(mirror):
    with pytest.raises(DatasetUnavailableError, match=r"has no uci/yacht\.csv\.gz") as caught:
        datasets.load("yacht")
    assert str(mirror) in str(caught.value)


def test_a_mirror_that_is_no_directory_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("FSPLAPLACE_DATA", str(tmp_path / "absent"))
    with pytest.raises(DatasetUnavailableError, match=r"FSPLAPLACE_DATA is .*absent.*no directory"):
        datasets.load("co2")


def test_an_unknown_name_lists_the_known_ones():
    for call in (datasets.load, datasets.fetch, datasets.path, datasets.verify):
        with pytest.raises(ValueError, match="there is no dataset 'cifar'; pass one of co2, gulfdrifters, mnist"):
            call("cifar")


# --- Downloads


def test_a_download_is_kept_and_needs_the_network_once(no_mirror, cache, register, server):
    url, root = server
    register({"uci/fake.csv": TABLE}, url=url)
    served = write(root, "uci/fake.csv", TABLE)
    assert datasets.path("fake") == {"uci/fake.csv": cache / "uci/fake.csv"}
    with pytest.raises(DatasetUnavailableError, match="fetch it with `fsplaplace data fetch fake`"):
        datasets.verify("fake")
    assert datasets.fetch("fake") == datasets.path("fake")
    served.unlink()
    assert datasets.load("fake").y.tolist() == [3.0, -6.5]
    assert datasets.verify("fake") == {"uci/fake.csv": sha256(TABLE)}


def test_a_file_that_the_mirror_lacks_is_downloaded(mirror, cache, register, server):
    url, root = server
    register({"fake.csv": TABLE}, url=url)
    write(root, "fake.csv", TABLE)
    assert datasets.fetch("fake") == {"fake.csv": cache / "fake.csv"}


def test_a_download_with_another_hash_is_refused_and_not_kept(no_mirror, cache, register, server):
    url, root = server
    register({"fake.csv": TABLE}, url=url)
    write(root, "fake.csv", b"an error page")
    with pytest.raises(DatasetUnavailableError) as caught:
        datasets.load("fake")
    assert sha256(TABLE) in str(caught.value)
    assert sha256(b"an error page") in str(caught.value)
    assert not (cache / "fake.csv").exists()


def test_a_second_wrapper_of_the_same_content_is_accepted_from_either_side(mirror, cache, register, server):
    url, root = server
    wrapped, rewrapped = gzip.compress(TABLE, 1, mtime=0), gzip.compress(TABLE, 9, mtime=1)
    assert wrapped != rewrapped
    register({"fake.csv.gz": wrapped}, url=url, download_sha256=sha256(rewrapped))
    write(root, "fake.csv.gz", rewrapped)
    assert datasets.load("fake").y.tolist() == [3.0, -6.5]
    for content in (wrapped, rewrapped):
        write(mirror, "fake.csv.gz", content)
        assert datasets.verify("fake") == {"fake.csv.gz": sha256(content)}


def test_neither_mirror_nor_network_names_file_address_and_variable(no_mirror, cache, register, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    register({"fake.csv": TABLE}, url=url)
    with pytest.raises(DatasetUnavailableError) as caught:
        datasets.load("fake")
    for part in (
        "'fake'",
        "FSPLAPLACE_DATA is not set",
        f"{url}/fake.csv",
        str(cache / "fake.csv"),
        sha256(TABLE),
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("module", ["pandas", "pooch"])
def test_a_missing_dependency_names_the_extra(module, no_mirror, cache, register, server, monkeypatch):
    url, root = server
    register({"fake.csv": TABLE}, url=url)
    write(root, "fake.csv", TABLE)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'needs {module}; install it with `pip install "fsplaplace\[data\]"`'):
        datasets.load("fake")


# --- Formats


@pytest.mark.parametrize("marker", ["-9.99", "-99.99"])
def test_months_without_a_mean_are_left_out_and_months_without_a_spread_stay(mirror, register, marker):
    content = (
        "# comment\nyear,month,decimal date,average,deseasonalized,ndays,sdev,unc\n"
        f"1958,3,1958.2027,315.71,314.44,-1,-9.99,-0.99\n"
        f"1958,4,1958.2877,{marker},315.16,-1,-9.99,-0.99\n"
        f"1974,5,1974.3750,333.19,330.00,30,0.30,0.10\n"
    ).encode()
    register({"fake.csv": content}, reader="co2")
    write(mirror, "fake.csv", content)
    data = datasets.load("fake")
    assert data.X.tolist() == [[1958.2027], [1974.3750]]
    assert data.y.tolist() == [315.71, 333.19]


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


def test_images_become_grey_levels_in_the_unit_interval_with_integer_labels(mirror, register):
    pixels = np.random.default_rng(0).integers(256, size=(3, 28, 28))
    contents = {
        "a.gz": idx(pixels),
        "b.gz": idx(np.array([7, 0, 9])),
        "c.gz": idx(pixels[:1]),
        "d.gz": idx(np.ones(1)),
    }
    register(contents, reader="images")
    for path, content in contents.items():
        write(mirror, path, content)
    data = datasets.load("fake")
    np.testing.assert_allclose(data.X[..., 0] * 255, pixels, rtol=1e-6)
    assert data.X.shape == (3, 28, 28, 1)
    assert data.X.dtype == np.float32
    assert data.y.tolist() == [7, 0, 9]
    assert np.issubdtype(data.y.dtype, np.integer)
    assert data.X_test is not None
    assert data.X_test.shape == (1, 28, 28, 1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (gzip.compress(b"\x00\x00\x0d\x01" + bytes(8), mtime=0), "no idx file of unsigned bytes"),
        (gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2, 28, 28) + bytes(10), mtime=0), "its header"),
        (idx(np.zeros((2, 28, 28))), "holds 2 images, but"),
    ],
)
def test_files_that_are_no_images_are_refused(mirror, register, images, message):
    contents = {"a.gz": images, "b.gz": idx(np.zeros(3))}
    register(contents, reader="images")
    for path, content in contents.items():
        write(mirror, path, content)
    with pytest.raises(ValueError, match=message):
        datasets.load("fake")


# --- The catalogue and the real files


@pytest.mark.parametrize("name", datasets.names())
def test_every_entry_is_complete(name):
    entry = _catalogue.entry(name)
    assert entry.files
    for file in entry.files:
        for digest in filter(None, (file.sha256, file.download_sha256)):
            assert len(bytes.fromhex(digest)) == 32
        assert file.url is None or file.url.endswith(Path(file.path).name)
    assert all((entry.source, entry.target_name, entry.units, entry.description))
    assert "Subset" in entry.note or name not in ("denmark", "song")


SHAPES = {
    "co2": ((815, 1), (815,)),
    "gulfdrifters": ((20, 2), (20, 2)),
    "mnist": ((60000, 28, 28, 1), (60000,)),
    "fashion_mnist": ((60000, 28, 28, 1), (60000,)),
    "kmnist": ((10000, 28, 28, 1), (10000,)),
    "boston": ((506, 13), (506,)),
    "concrete": ((1030, 8), (1030,)),
    "energy": ((768, 8), (768,)),
    "kin8nm": ((8192, 8), (8192,)),
    "naval": ((11934, 16), (11934,)),
    "power": ((9568, 4), (9568,)),
    "protein": ((45730, 9), (45730,)),
    "wine": ((1599, 11), (1599,)),
    "yacht": ((308, 6), (308,)),
    "denmark": ((5000, 2), (5000,)),
    "song": ((1176, 90), (1176,)),
    "parkinsons": ((5875, 20), (5875,)),
    "sml": ((4137, 26), (4137,)),
    "pumadyn32nm": ((8192, 32), (8192,)),
    "bike": ((17379, 17), (17379,)),
}


@needs_mirror
@pytest.mark.parametrize("name", datasets.names())
def test_every_dataset_has_its_published_shape(name):
    data = datasets.load(name)
    assert (data.X.shape, data.y.shape) == SHAPES[name]
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()
    if data.X.ndim == 2:
        assert len(data.feature_names) == data.X.shape[1]
        assert data.X.dtype == data.y.dtype == np.float64


@needs_mirror
def test_co2_rises_month_by_month_through_the_papers_period():
    data = datasets.load("co2")
    years = data.X[:, 0]
    assert np.all((np.diff(years) > 0.07) & (np.diff(years) < 0.1))
    assert ((years > 1974.37) & (years < 2025)).sum() == 608
    assert data.y.min() > 310
    assert data.y.max() < 435


@needs_mirror
def test_ocean_test_points_form_the_papers_grid():
    data = datasets.load("gulfdrifters")
    assert data.X_test is not None
    assert data.y_test is not None
    assert data.X_test.shape == data.y_test.shape == (544, 2)
    assert [len(np.unique(column)) for column in data.X_test.T] == [34, 16]
    for X in (data.X, data.X_test):
        assert np.all(X >= [-90.8, 24.0])
        assert np.all(X <= [-83.8, 27.5])


@needs_mirror
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "kmnist"])
def test_images_span_the_unit_interval_and_label_every_class(name):
    data = datasets.load(name)
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)
    assert np.unique(data.y).tolist() == list(range(10))
    assert len(data.class_names) == 10
    if name == "kmnist":
        assert data.X_test is None
        assert "test split" in data.note
    else:
        assert data.X_test is not None
        assert data.X_test.shape == (10000, 28, 28, 1)


@needs_mirror
def test_kmnist_class_names_are_those_of_its_class_map():
    class_map = Path(MIRROR or "", "kmnist", "kmnist_classmap.csv")
    if not class_map.is_file():
        pytest.skip("the mirror does not hold KMNIST's class map")
    characters = [line.split(",")[2] for line in class_map.read_text(encoding="utf-8").splitlines()[1:]]
    assert datasets.load("kmnist").class_names == tuple(characters)


@needs_mirror
def test_naval_has_the_constant_and_the_equal_columns_its_note_warns_of():
    X = datasets.load("naval").X
    assert (np.ptp(X, axis=0) == 0).sum() == 2
    assert np.array_equal(X[:, 5], X[:, 6])

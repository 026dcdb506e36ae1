"""Files: whole or not at all, with the permissions that a user expects, and nothing left behind."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import pytest

from fsplaplace.host import _files, check_target, read_tensors, write_atomically, write_tensors

KIND = "test file"
# For processes of their own: the file of this module alone, without the seconds that the library takes to import.
ALONE = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("_files", {_files.__file__!r})
_files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_files)
"""


@pytest.fixture
def umask():
    """Set the umask of this process for one test."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


def write(path, value=0.0):
    write_tensors(path, {"a": np.full(3, value)}, {"kind": KIND})


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("writer", [write, lambda path: write_atomically(path, b"x")])
@pytest.mark.parametrize(("mask", "wanted"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_what_the_umask_leaves(tmp_path, umask, writer, mask, wanted):
    umask(mask)
    writer(tmp_path / "file")
    assert mode(tmp_path / "file") == wanted


@pytest.mark.parametrize("old", [0o600, 0o664, 0o640])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, umask, old):
    path = tmp_path / "file"
    write(path)
    path.chmod(old)
    write(path, 1.0)
    assert mode(path) == old
    assert read_tensors(path, kind=KIND)[0]["a"][0] == 1.0


def test_the_file_that_is_written_is_never_more_open_than_the_one_it_replaces(tmp_path, umask):
    path = tmp_path / "secret"
    write(path)
    path.chmod(0o600)
    with _files.replacing(path) as temporary:
        assert mode(temporary) == 0o600


def test_a_link_is_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    write(link, 2.0)
    assert link.is_symlink()
    assert read_tensors(tmp_path / "elsewhere" / "file", kind=KIND)[0]["a"][0] == 2.0


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match=r"is a device or a pipe.*pass the name of a file"):
            write(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_tensors(pipe, kind=KIND)


def test_a_link_to_another_file_system_is_followed(tmp_path):
    elsewhere = pathlib.Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        link = tmp_path / "link"
        link.symlink_to(pathlib.Path(folder) / "file")
        write(link, 2.0)
        assert link.is_symlink()
        assert read_tensors(pathlib.Path(folder) / "file", kind=KIND)[0]["a"][0] == 2.0
        assert os.listdir(folder) == ["file"]


def test_a_write_protected_file_is_kept():
    """Its directory would allow to replace it, as `mv` does after asking."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = pathlib.Path(folder) / "file"
        path.write_bytes(b"kept")
        path.chmod(0o444)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks of processes with threads: this one only writes a file
            child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)  # permissions do not hold an administrator
                write_atomically(path, b"lost")
            except PermissionError as error:
                code = 7 if "write-protected" in str(error) else 8
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert path.read_bytes() == b"kept"


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_at_the_end(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: calls.append(name) or real(*args))
    write(tmp_path / "file")
    assert calls == ["fsync", "replace", "fsync"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "file"
    script = f"""{ALONE}
import os, signal
with _files.replacing({str(path)!r}) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part"
    write(path)
    assert left.exists(), "it might belong to somebody who has just begun"
    os.utime(left, (time.time() - 3600,) * 2)
    write(path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_a_writer_that_lives_is_left_alone(tmp_path):
    path = tmp_path / "file"
    with _files.replacing(path) as temporary:
        os.utime(temporary, (time.time() - 3600,) * 2)
        write(path, 1.0)
        assert temporary.exists()
        temporary.write_bytes(b"late")
    assert path.read_bytes() == b"late"


def test_of_many_writers_one_wins_whole(tmp_path):
    path = tmp_path / "file"

    def again(value):
        for _ in range(20):
            write(path, value)

    writers = [threading.Thread(target=again, args=(float(value),)) for value in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(50):
        if path.exists():
            assert np.ptp(read_tensors(path, kind=KIND)[0]["a"]) == 0
    for writer in writers:
        writer.join()
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(tmp_path):
    """The system refuses to write more than 4 kB, in the middle of the file."""
    path = tmp_path / "file"
    write(path)
    before = path.read_bytes()
    script = f"""{ALONE}
import resource, signal
import numpy as np
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    _files.write_tensors({str(path)!r}, {{"a": np.zeros(10_000)}}, {{"kind": {KIND!r}}})
except OSError as error:
    print(error.filename, error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"{path} cannot be written: File too large")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_is_said_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        check_target(tmp_path / "none" / "file")
    with pytest.raises(IsADirectoryError, match="pass the name of a file"):
        check_target(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o500)
    if os.geteuid():
        with pytest.raises(PermissionError, match="read-only"):
            check_target(tmp_path / "closed" / "file")

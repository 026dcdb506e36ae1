"""A result file is read whole or not at all."""

import json

import numpy as np
import pytest

from fsplaplace.experiments._records import ResultFormatError, fingerprint, read_record, write_record


def test_a_record_comes_back_as_it_was_written(tmp_path):
    write_record(
        tmp_path / "a.json", "kind", {"rows": (1, 2.5, None), "array": np.arange(3.0), "missing": float("nan")}
    )
    assert read_record(tmp_path / "a.json", "kind") == {
        "rows": [1, 2.5, None],
        "array": [0.0, 1.0, 2.0],
        "missing": None,
    }


@pytest.mark.parametrize("keep", [0, 1, 30, -2])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = tmp_path / "a.json"
    write_record(path, "kind", {"value": 1.0})
    path.write_text(path.read_text()[:keep])
    with pytest.raises(ResultFormatError, match="not a readable kind"):
        read_record(path, "kind")


def test_a_changed_number_is_refused(tmp_path):
    path = tmp_path / "a.json"
    write_record(path, "kind", {"mse": 8.9})
    path.write_text(path.read_text().replace("8.9", "3.9"))
    with pytest.raises(ResultFormatError, match="checksum"):
        read_record(path, "kind")


@pytest.mark.parametrize("text", ["[]", "{}", json.dumps({"kind": "other", "content": {}})])
def test_another_kind_of_file_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ResultFormatError, match="is not a kind"):
        read_record(tmp_path / "a.json", "kind")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_record(path, "kind", {"value": 1})
    with pytest.raises(TypeError):
        write_record(path, "kind", {"value": object()})
    assert read_record(path, "kind") == {"value": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_settings_in_another_order_are_the_same_and_other_values_are_not():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1, "b": 2}) != fingerprint({"a": 1, "b": 3})

"""`fsplaplace studio` and how the page is put together: one file, nothing from elsewhere, nothing that a table could smuggle in."""

import csv
import io
import json
import re

import pytest
from typer.testing import CliRunner

from fsplaplace.cli import app
from fsplaplace.studio import _page, linked, studio_page, write_studio


def given(page: str) -> dict | None:
    """The data in a page."""
    return json.loads(re.search(r'<script type="application/json" id="given">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_is_one_file_that_asks_for_no_other():
    page = studio_page()
    assert not re.search(r"https?://|<link|src=|@import|url\(|\bimport\b.*\bfrom\b", page)
    assert "{{" not in page
    assert page.count("<script") == 2
    assert "default-src 'none'" in page
    assert given(page) is None


def test_a_table_cannot_end_the_element_that_holds_it(tmp_path):
    attack = "</script><script>alert(1)</script>"
    (tmp_path / "t.csv").write_text(f"a,{attack}\n1,2\n3,4\n")
    page = write_studio(tmp_path / "s.html", tmp_path / "t.csv").read_text()
    assert attack not in page
    assert given(page)["text"].startswith(f"a,{attack}")


def test_a_long_table_is_sampled_and_its_length_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},{-i}\n" for i in range(100_000)))
    held = given(write_studio(tmp_path / "s.html", tmp_path / "t.csv", target="b").read_text())
    rows = list(csv.reader(io.StringIO(held["text"])))
    assert held["rows"] == 100_000
    assert held["targets"] == ["b"]
    assert len(rows) == 2001
    numbers = [int(row[0]) for row in rows[1:]]
    assert numbers == sorted(set(numbers))
    assert min(numbers) < 1000
    assert max(numbers) > 99_000


@pytest.mark.parametrize(
    ("content", "target", "words"),
    [
        (None, None, "does not exist"),
        ("", None, "0 line(s)"),
        ("a,b\n", None, "1 line(s)"),
        ("a\n1\n2\n", None, "1 column(s)"),
        ("a,b\n" + "1" * 200_000 + ",2\n", None, "not a CSV file"),
        ("a,b\n1,2\n", "c", "no column 'c'; its columns are a, b"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(content, target, words, tmp_path):
    table, page = tmp_path / "t.csv", tmp_path / "s.html"
    page.write_text("kept")
    if content is not None:
        table.write_text(content)
    options = [] if target is None else ["--target", target]
    done = CliRunner().invoke(app, ["studio", str(table), *options, "--out", str(page), "--no-open"])
    assert done.exit_code == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert page.read_text() == "kept"


def test_a_target_without_a_table_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no table"):
        write_studio(tmp_path / "s.html", target="y")


def test_a_vector_field_needs_two_targets_and_two_inputs(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match="two of each"):
        write_studio(tmp_path / "s.html", tmp_path / "t.csv", target=["b", "c"])
    with pytest.raises(ValueError, match="3 columns"):
        write_studio(tmp_path / "s.html", tmp_path / "t.csv", target=["a", "b", "c"])


def test_without_a_table_the_command_writes_the_prior_alone(tmp_path):
    done = CliRunner().invoke(app, ["studio", "--out", str(tmp_path / "s.html"), "--no-open"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "s.html").read_text() == studio_page()


def test_a_table_of_a_spreadsheet_is_read(tmp_path):
    (tmp_path / "t.csv").write_bytes("a;b\n0,5;1\n1,5;2\n".encode("utf-16"))
    assert given(write_studio(tmp_path / "s.html", tmp_path / "t.csv").read_text())["text"] == 'a,b\n"0,5",1\n"1,5",2\n'


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe1,2\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        write_studio(tmp_path / "s.html", tmp_path / "t.csv")


def test_modules_are_linked_each_once_and_after_what_they_import(monkeypatch):
    order = re.findall(r"^// (\w+)\.mjs$", linked("main"), re.MULTILINE)
    assert len(order) == len(set(order))
    assert order[-1] == "main"
    assert order.index("profiles") < order.index("kernels") < order.index("covariance") < order.index("process")
    parts = {
        "a.mjs": 'import { b } from "./b.mjs";\n',
        "b.mjs": 'import { a } from "./a.mjs";\n',
        "c.mjs": 'import c from "./a.mjs";\n',
    }
    monkeypatch.setattr(_page, "_part", parts.__getitem__)
    with pytest.raises(ValueError, match="import each other"):
        linked("a")
    with pytest.raises(ValueError, match="cannot be linked"):
        linked("c")

"""The command line: what it prints, what it writes, and one sentence for every mistake."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from fsplaplace import experiments
from fsplaplace.cli import app

run = CliRunner()


def refused(*arguments) -> str:
    """The one sentence on stderr of a command that fails with exit code 1."""
    result = run.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    return result.stderr


def table(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


GOOD = "x,y\n" + "\n".join(f"{value:.3f},{np.sin(value):.4f}" for value in np.linspace(-2, 2, 30)) + "\n"


def test_every_command_explains_itself():
    for command in (
        [],
        ["demo"],
        ["reproduce"],
        ["data"],
        ["data", "verify"],
        ["report"],
        ["fit"],
        ["studio"],
        ["predict"],
    ):
        result = run.invoke(app, [*command, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.output


def test_the_list_names_every_experiment():
    result = run.invoke(app, ["reproduce", "--list"])
    assert result.exit_code == 0
    assert all(name in result.output for name in experiments.names())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "unknown"], "no experiment 'unknown'"),
        (["reproduce"], "needs the name"),
        (["reproduce", "sine", "--preset", "huge"], "no preset 'huge'"),
        (["data", "fetch", "unknown"], "no dataset 'unknown'"),
        (["report", "missing-directory"], "is not a directory"),
    ],
)
def test_a_wrong_name_is_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in refused(*arguments)


def test_a_directory_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in refused("reproduce", "sine", "--preset", "quick", "--out", tmp_path / "file")


def test_missing_data_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("FSPLAPLACE_DATA", str(tmp_path / "nowhere"))
    assert "FSPLAPLACE_DATA" in refused("reproduce", "ocean", "--preset", "quick", "--out", tmp_path)
    assert "FSPLAPLACE_DATA" in refused("data", "fetch", "boston")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("x,y\n", "no rows"),
        ("x,y\n1,2\n", "1 row"),
        ("x,y\n1,2\n2,red\n3,4\n4,5\n5,6\n", "row 3 has 'red' in column 'y'"),
        ("x,y\n1,2\n,3\n3,4\n4,5\n5,6\n", "row 3 has no value in column 'x'"),
        ("x,y\n1,2\nnan,3\n3,4\n4,5\n5,6\n", "row 3 has no value in column 'x'"),
        ("x,y\n1,2\ninf,3\n3,4\n4,5\n5,6\n", "infinite"),
        ("x,x,y\n1,2,3\n", "'x' more than once"),
        ("x,z\n" + "1,2\n" * 6, "no column 'y'"),
        ("y\n" + "1\n" * 6, "no other column"),
        ("x,y\n1,2\n1,2,3\n", "row 3 has 3 cells"),
        ("1,2\n3,4\n", "add a header"),
        ("x;y\n1;2\n", "1 row"),
        ("x,\n1,2\n", "column 2 has no name"),
        ("x,y\n1_000,2\n5,3\n", "row 2 has '1_000' in column 'x', which is not a number"),
        ("# a comment\n# another\nx,y\n1,2\n2,red\n", "row 5 has 'red' in column 'y'"),
        ("# only comments\n", "has comments only"),
        ("x,y\n1," + "2" * 140_000 + "\n", "line 2 cannot be read as CSV"),
    ],
)
def test_a_bad_table_is_one_sentence_that_names_the_place(tmp_path, text, words):
    assert words in refused("fit", table(tmp_path / "t.csv", text), "--target", "y", "--out", tmp_path / "fit")
    assert not (tmp_path / "fit" / "model.json").exists()


def test_a_file_in_another_encoding_is_named_or_read(tmp_path):
    latin = table(tmp_path / "latin.csv", "größe,y\n1,2\n", encoding="latin-1")
    assert "not UTF-8" in refused("fit", latin, "--target", "y")
    # UTF-16 and a byte-order mark say what they are, so they are read; the mistake found is the next one.
    for encoding in ("utf-16", "utf-8-sig"):
        path = table(tmp_path / f"{encoding}.csv", "größe,y\n1,2\n", encoding=encoding)
        assert "1 row" in refused("fit", path, "--target", "y")


@pytest.mark.parametrize("name", ["the table", "a link to it", "another name of it"])
@pytest.mark.parametrize("command", ["predict", "studio"])
def test_what_is_read_is_never_replaced(tmp_path, command, name):
    good = table(tmp_path / "t.csv", GOOD)
    out = good if name == "the table" else tmp_path / "other.csv"
    if name == "a link to it":
        out.symlink_to(good)
    elif name == "another name of it":
        out.hardlink_to(good)
    (tmp_path / "model").mkdir()
    first = ("predict", tmp_path / "model") if command == "predict" else ("studio", "--no-open")
    said = refused(*first, good, "--out", out)
    assert "would be lost; pass another name" in said
    assert good.read_text() == GOOD


@pytest.mark.parametrize("name", ["model.json", "posterior.safetensors", "predictions.csv", "fit.png"])
def test_a_fit_replaces_nothing_that_no_fit_wrote(tmp_path, name):
    good, out = table(tmp_path / "t.csv", GOOD), tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("mine")
    said = refused("fit", good, "--target", "y", "--out", out)
    assert f"holds {name}, but no model.json that `fsplaplace fit` wrote; pass another directory" in said
    assert (out / name).read_text() == "mine"


def test_a_model_is_not_replaced_by_its_predictions(tmp_path):
    good, model = table(tmp_path / "t.csv", GOOD), tmp_path / "model"
    model.mkdir()
    for name in ("model.json", "posterior.safetensors"):
        (model / name).write_text("a model")
        assert "would be lost" in refused("predict", model, good, "--out", model / name)
        assert (model / name).read_text() == "a model"


def test_a_share_that_leaves_no_rows_to_fit_is_refused(tmp_path):
    good = table(tmp_path / "t.csv", "x,y\n1,2\n2,3\n3,5\n4,1\n5,2\n")
    said = refused("fit", good, "--target", "y", "--test-fraction", "0.85", "--out", tmp_path / "fit")
    assert "--test-fraction 0.85 of 5 rows leaves 1 to fit" in said


def test_other_mistakes_of_fit_and_predict(tmp_path):
    good = table(tmp_path / "t.csv", GOOD)
    assert "does not exist" in refused("fit", tmp_path / "none.csv", "--target", "y")
    assert "kernel is 'fourier'; pass one of 'rbf'" in refused("fit", good, "--target", "y", "--kernel", "fourier")
    assert "model.json" in refused("predict", tmp_path, good)


@pytest.mark.slow
def test_fit_then_predict_gives_the_same_numbers(fitted, tmp_path):
    good, out, said = fitted / "t.csv", fitted / "fit", (fitted / "said").read_text()
    assert "RMSE" in said
    assert "verdict: good" in said
    figure = (out / "fit.png").read_bytes()
    assert figure.startswith(b"\x89PNG")
    width, height = (int.from_bytes(figure[at : at + 4], "big") for at in (16, 20))
    assert width > 1.5 * height  # one input: the series with its band, wide as a series is
    predicted = run.invoke(app, ["predict", str(out), str(good), "--out", str(tmp_path / "p.csv")])
    assert predicted.exit_code == 0, predicted.output
    first, second = (_columns(path) for path in (out / "predictions.csv", tmp_path / "p.csv"))
    for name in ("mean", "std"):
        np.testing.assert_allclose(second[name], first[name], rtol=1e-4, atol=1e-5)
    assert np.all(second["std"] > 0)
    assert not second["outside"].any()
    assert json.loads((out / "model.json").read_text())["content"]["features"] == ["x"]


@pytest.mark.slow
def test_a_season_of_many_periods_is_held_saved_and_predicted(tmp_path):
    x = np.linspace(0, 12, 60)
    rows = "\n".join(f"{value:.3f},{np.sin(2 * np.pi * value) + 0.02 * np.cos(9 * value):.4f}" for value in x)
    path, out = table(tmp_path / "t.csv", f"the month,y\n{rows}\n"), tmp_path / "fit"
    options = ["--kernel", "periodic(1, the month) * rbf", "--steps", "50", "-q"]
    done = run.invoke(app, ["fit", str(path), "--target", "y", "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    assert "verdict: good" in done.output
    assert json.loads((out / "model.json").read_text())["content"]["network"]["circles"] == 1
    predicted = run.invoke(app, ["predict", str(out), str(path), "--out", str(tmp_path / "p.csv")])
    assert predicted.exit_code == 0, predicted.output
    found = _columns(tmp_path / "p.csv")["mean"]
    np.testing.assert_allclose(found, np.sin(2 * np.pi * x), atol=0.1)


SEASONS = """# a series of dates, categories and decimal commas
when;place;code;y
""" + "".join(
    f"{np.datetime64('2001-01-15') + 30 * k};{'north' if k % 2 else 'south'};{k % 3};"
    f"{np.sin(2 * np.pi * 30 * k / 365.2425) + 0.02 * k + 0.3 * (k % 2):.4f}\n".replace(".", ",")
    for k in range(60)
)


@pytest.mark.slow
def test_a_forecast_of_dates_categories_and_decimal_commas(tmp_path):
    """What was found is said, stated parameters are kept, and new rows are read the same way."""
    path, out = table(tmp_path / "s.csv", SEASONS), tmp_path / "fit"
    options = ["--drop", "code", "--test", "last", "--kernel", "linear + periodic(1 year) * rbf + rbf(place)"]
    done = run.invoke(app, ["fit", str(path), "--target", "y", "--out", str(out), "--steps", "300", "-q", *options])
    assert done.exit_code == 0, done.output
    for said in (
        "1 comment line skipped", "separated by semicolons", "decimal commas", "when: ISO dates, as years", "place: 2 categories",
        "48 rows to fit, the last 12 by 'when' held out", 'kernel: linear + periodic(period=1.0, "when") * rbf + rbf("place=south")',
    ):  # fmt: skip
        assert said in done.output
    rmse = float(done.output.split("RMSE: ")[1].split()[0])
    assert rmse < 0.35  # The targets of those months have a standard deviation of 0.7.
    new = table(tmp_path / "new.csv", "when,place\n2004-05-01,north\n2004-05-01,east\n2400-01-01,south\n")
    predicted = run.invoke(app, ["predict", str(out), str(new), "--out", str(tmp_path / "p.csv")])
    assert predicted.exit_code == 0, predicted.output
    assert "1 rows have a 'place' that the model never saw, such as 'east'" in predicted.output
    assert "2 rows lie outside" in predicted.output
    with (tmp_path / "p.csv").open() as file:
        assert [row["outside"] for row in csv.DictReader(file)] == ["0", "1", "1"]


@pytest.mark.slow
def test_the_second_process_takes_its_programs_from_the_cache(fitted, tmp_path, monkeypatch):
    """By default they are in the user's cache directory. With programs on disk nothing is compiled: the second process writes
    none, and predicts the same bits."""
    out, cache = tmp_path / "p.csv", tmp_path / "fsplaplace" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run.invoke(app, ["data", "list"])
    assert not cache.exists()
    monkeypatch.delenv("FSPLAPLACE_NO_CACHE")
    found = []
    for options in ([], ["--cache", str(cache)]):
        command = [*options, "predict", str(fitted / "fit"), str(fitted / "t.csv"), "--out", str(out)]
        subprocess.run([sys.executable, "-c", "from fsplaplace.cli import main; main()", *command], check=True)
        found.append((sorted(path.name for path in cache.glob("*-cache")), out.read_bytes()))
    assert len(found[0][0]) > 3
    assert found[0] == found[1]


def test_commands_run_where_the_users_cache_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(table(tmp_path / "file", "")))
    monkeypatch.delenv("FSPLAPLACE_NO_CACHE")
    assert run.invoke(app, ["data", "list"]).exit_code == 0


def test_a_cache_that_cannot_be_a_directory_is_one_sentence(tmp_path):
    table(tmp_path / "file", "")
    assert "cannot be a directory" in refused("--cache", tmp_path / "file", "data", "list")


def _columns(path):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A directory that `fit` wrote, and what it said: one fit for all tests of this file that need none of their own."""
    folder = tmp_path_factory.mktemp("fitted")
    good = table(folder / "t.csv", GOOD)
    options = ["--kernel", "rbf", "--steps", "100", "-q"]
    done = run.invoke(app, ["fit", str(good), "--target", "y", "--out", str(folder / "fit"), *options])
    assert done.exit_code == 0, done.output
    (folder / "said").write_text(done.output)
    return folder


def test_a_mistyped_model_is_never_another_one(fitted, tmp_path):
    """`predict TYPO table.csv` once predicted with whatever model lay in the parent directory."""
    shutil.copytree(fitted / "fit", tmp_path, dirs_exist_ok=True)
    good = table(tmp_path / "t.csv", GOOD)
    assert "is no saved model" in refused("predict", tmp_path / "TYPO", good, "--out", tmp_path / "p.csv")
    assert "is no saved model" in refused("predict", good, good, "--out", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    by_file = run.invoke(app, ["predict", str(tmp_path / "model.json"), str(good), "--out", str(tmp_path / "p.csv")])
    assert by_file.exit_code == 0, by_file.output


@pytest.mark.parametrize("words", ["predict MODEL t.csv", "predict model TABLE", "fit t.csv --target y --out OUT"])
def test_a_name_that_is_empty_is_not_the_current_directory(words):
    """As of a variable that is not set; `Path("")` is the current directory, where another model may lie."""
    result = run.invoke(app, [word if word.islower() or "." in word else "" for word in words.split()])
    assert result.exit_code == 2
    assert "the name is empty" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("features",), None, "lacks 'features'"),
        (("features",), [1], "lacks features"),
        (("target",), 3, "lacks features"),
        (("network",), None, "lacks 'network'"),
        (("network", "widths"), None, "describes no network"),
        (("network", "widths"), [1, -50, 1], "describes no network"),
        (("network", "widths"), [1, 100_000, 100_000, 1], "too small to hold"),
        (("network", "dtype"), "object", "describes no network"),
        (("network", "circles"), -1, "describes no network"),
        (("network", "circles"), 10**9, "describes no network"),
        (("scales", "input_std"), [0.0], "input_std is not 1 number"),
        (("scales", "target_mean"), "x", "target_mean is not 1 number"),
        (("scales", "target_std"), [1e308], "target_std has values up to 1e+308"),
        (("scales",), [], "lacks features"),
        (("posterior_sha256",), "0" * 64, "of different fits"),
        (("posterior_sha256",), [], "posterior_sha256 is not what"),
        (("posterior_sha256",), None, "lacks 'posterior_sha256'"),
        (("rows",), None, "lacks 'rows'"),
        (("rows",), "many", "rows is not what"),
        (("scores",), [], "scores is not what"),
        (
            ("noise",),
            {"networks": [], "limits": [0.0, 1.0], "level": 0.0},
            "noise does not say how the noise varies with 1 columns",
        ),
        (("noise",), [1.0], "noise does not say"),
        (("more",), 1, "unknown field 'more'"),
        (("network", "more"), 1, "unknown field 'network.more'"),
        (("scales", "more"), [1.0], "unknown field 'scales.more'"),
        (("columns",), [{"name": "z", "kind": "number", "categories": []}], "columns does not say"),
        (("columns",), [{"name": "x", "kind": "category", "categories": [1, 2]}], "columns does not say"),
        (("columns",), [{"name": "x", "kind": "category", "categories": ["a", "b", "c"]}], "describes no network"),
    ],
)
def test_a_description_that_was_changed_and_sealed_again_is_refused(fitted, tmp_path, place, value, words):
    """Two kilobytes that described a network of gigabytes were built before they were compared."""
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    path = tmp_path / "fit" / "model.json"
    content = json.loads(path.read_text())["content"]
    node = content
    for name in place[:-1]:
        node = node[name]
    if value is None:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    experiments.write_record(path, "fsplaplace table model", content)
    assert words in refused("predict", tmp_path / "fit", fitted / "t.csv", "--out", tmp_path / "p.csv")


def test_noise_that_varies_is_saved_and_predicted_with(fitted, tmp_path):
    """Of a table of many rows; here the description of a small one gets noise that is e times larger on the right."""
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    path = tmp_path / "fit" / "model.json"
    content = json.loads(path.read_text())["content"]
    assert content["noise"] is None
    step = [[[[1e6]], [0.0]], [[[1.0]], [1.0]]]  # tanh(1e6 x) + 1: 0 or 2 for the logarithm of the variance
    content["noise"] = {"networks": [step], "limits": [-5.0, 5.0], "level": 0.0}
    (columns, other) = (tmp_path / name for name in ("constant.csv", "varying.csv"))
    for folder, out in ((fitted / "fit", columns), (tmp_path / "fit", other)):
        done = run.invoke(app, ["predict", str(folder), str(fitted / "t.csv"), "--out", str(out)])
        assert done.exit_code == 0, done.output
        experiments.write_record(path, "fsplaplace table model", content)
    before, after = _columns(columns), _columns(other)
    np.testing.assert_array_equal(before["mean"], after["mean"])
    added = after["std"] ** 2 - before["std"] ** 2
    np.testing.assert_allclose(added[before["x"] < -0.5], 0.0, atol=1e-9)
    noise = added[before["x"] > 0.5] / (np.e**2 - 1)
    np.testing.assert_allclose(noise, noise[0], rtol=1e-4)
    assert 0 < noise[0] < before["std"].min() ** 2


def test_a_deeply_nested_description_is_one_sentence(fitted, tmp_path):
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    (tmp_path / "fit" / "model.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "is not a readable" in refused("predict", tmp_path / "fit", fitted / "t.csv", "--out", tmp_path / "p.csv")


def test_places_that_cannot_be_written_are_found_before_the_work(fitted, tmp_path):
    good = fitted / "t.csv"
    assert "is a directory" in refused("predict", fitted / "fit", good, "--out", tmp_path)
    assert "there is no directory" in refused("predict", fitted / "fit", good, "--out", tmp_path / "none" / "p.csv")
    (tmp_path / "file").write_text("")
    assert "is a file; pass a directory" in refused("fit", good, "--target", "y", "--out", tmp_path / "file")


def test_a_seed_that_is_none_is_refused(fitted):
    result = run.invoke(app, ["fit", str(fitted / "t.csv"), "--target", "y", "--seed", "-1"])
    assert result.exit_code == 2
    assert "--seed" in result.output


def test_verify_goes_through_all_sets_and_names_a_command(tmp_path, monkeypatch):
    monkeypatch.setenv("FSPLAPLACE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = run.invoke(app, ["data", "verify", "boston", "yacht"])
    assert result.exit_code == 1
    assert "boston:" in result.output
    assert "yacht:" in result.output
    assert "`fsplaplace data fetch boston yacht`" in result.stderr


# What each command does, by the function that is interrupted and the words that are typed; OUT is a directory.
WORK = {
    "fit": ("fsplaplace.cli._tables.fit_table", "fit t.csv --target y --out OUT"),
    "predict": ("fsplaplace.cli._tables.predict_table", "predict model t.csv --out OUT/part.json"),
    "reproduce": ("fsplaplace.cli._reproduce.run", "reproduce sine --out OUT"),
    "demo": ("fsplaplace.experiments.demo.run", "demo --out OUT"),
    "report": ("fsplaplace.experiments.report.write_report", "report --out OUT"),
    "studio": ("fsplaplace.studio.write_studio", "studio --out OUT/part.json"),
}


@pytest.mark.parametrize("command", WORK)
@pytest.mark.parametrize("written", [False, True])
def test_an_interrupt_says_what_is_kept(command, written, monkeypatch, tmp_path):
    def interrupt(*_, **__):
        if written:
            (tmp_path / "out" / "part.json").write_text("{}")
        raise KeyboardInterrupt

    function, words = WORK[command]
    monkeypatch.setattr(function, interrupt)
    (tmp_path / "out").mkdir()
    old = tmp_path / "out" / "old.json"
    old.write_text("{}")
    os.utime(old, (0, 0))
    result = run.invoke(app, words.replace("OUT", str(tmp_path / "out")).split())
    assert result.exit_code == 130
    assert ("nothing was written" in result.stderr) is not written
    assert ("part.json" in result.stderr) is written
    assert "old.json" not in result.stderr


@pytest.mark.parametrize("names", [["list"], ["fetch", "boston"], ["verify", "boston"]])
def test_an_interrupt_of_data_is_no_traceback(names, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    for function in ("show", "fetch", "verify"):
        monkeypatch.setattr(f"fsplaplace.cli._data.{function}", interrupt)
    result = run.invoke(app, ["data", *names])
    assert result.exit_code == 130
    assert result.stderr == "interrupted; nothing was written\n"


# The command as a program that presses Ctrl-C when a module is first asked for: in the middle of other imports.
PRESSES = """
import os, signal, sys
import fsplaplace_command

class Pressed:
    def find_spec(self, name, *_):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

moment = sys.argv.pop()
sys.meta_path.insert(0, Pressed())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background ignores it
fsplaplace_command.main()
"""


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("fit t.csv --target y", "fsplaplace"),
        ("demo", "jax._src.core"),
        ("predict model t.csv", "typer"),
        ("reproduce sine --preset quick", "fsplaplace.experiments"),
        ("fit t.csv --target y", "sklearn.utils"),
    ],
)
def test_an_interrupt_of_the_imports_is_one_sentence(words, moment, tmp_path):
    table(tmp_path / "t.csv", GOOD)
    command = [sys.executable, "-c", PRESSES, *words.split(), moment]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted; nothing was written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ascii", "pipe"])
def test_other_locales_and_closed_pipes_are_no_errors(case):
    code = "from fsplaplace.cli import main; main()"
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", code, "reproduce", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        if case == "pipe":
            process.stdout.close()
            error = process.stderr.read()
        else:
            _, error = process.communicate()
        process.wait()
    assert b"Traceback" not in error
    assert process.returncode == 0 if case == "ascii" else process.returncode in (0, 1, 141)

"""The studio in a real browser: what a person does with it, and what it says when the input is bad."""

import json
import shlex
from urllib.parse import quote

import jax.numpy as jnp
import numpy as np
import pytest
from studio.browser import Browser, find_chromium
from studio.cases import all_cases, python_numbers
from typer.testing import CliRunner

from fsplaplace import Prior
from fsplaplace.cli import app
from fsplaplace.estimators import Columns, kernel_by_name
from fsplaplace.studio import write_studio

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium on the PATH (the page's numbers are tested in Node.js all the same)"
)
WAVE = "hours,level\n" + "\n".join(f"{x:.4f},{3 + 2 * np.sin(x):.4f}" for x in np.linspace(0, 10, 200)) + "\n"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    opened.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def empty(folder):
    """The address of the page without data."""
    return write_studio(folder / "empty.html").resolve().as_uri()


@pytest.fixture
def page(browser, empty):
    """The page without data, fresh; a test fails if the console shows an error, or if anything but the page was asked for."""
    browser.errors.clear(), browser.requests.clear()
    browser.size(1200, 900)
    browser.open(empty)
    yield browser
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith(("file:", "about:", "blob:"))] == []


def text(page, element: str) -> str:
    return page.run(f"document.getElementById({element!r}).innerText")


def drop(page, content: str, name: str = "table.csv", *, row_text: str | None = None) -> None:
    """A file dropped on the page; `row_text` is repeated in the browser, for files too long to send."""
    script = f"""(async () => {{
        const content = {json.dumps(content)} + {json.dumps(row_text or "")}.repeat({100_000 if row_text else 0});
        const carried = new DataTransfer();
        carried.items.add(new File([content], {json.dumps(name)}, {{type: "text/csv"}}));
        window.dispatchEvent(new DragEvent("drop", {{dataTransfer: carried, bubbles: true, cancelable: true}}));
        await new Promise((done) => setTimeout(done, 150));
    }})()"""
    page.run(script)
    page.settle()


def click(page, element: str) -> None:
    page.run(f"document.getElementById({element!r}).click()")
    page.settle()


def choose(page, element: str, value: str) -> None:
    page.run(f"""(() => {{ const chosen = document.getElementById({element!r}); chosen.value = {value!r};
        chosen.dispatchEvent(new Event("change", {{bubbles: true}})); }})()""")
    page.settle()


def type_number(page, element: str, value: str) -> None:
    page.run(f"""(() => {{ const field = document.getElementById({element!r}); field.type = "text"; field.value = {value!r};
        field.dispatchEvent(new Event("change", {{bubbles: true}})); field.type = "number"; }})()""")
    page.settle()


def picture(page, name: str = "prior") -> str:
    return page.run(f"document.getElementById('{name}-canvas').toDataURL()")


def test_a_slider_moved_by_the_keyboard_changes_picture_numbers_and_address(page):
    before, number = picture(page), page.run("studio.read().terms[0][0].lengthscale")
    page.run("document.getElementById('terms-0-0-lengthscale').focus()")
    page.press("ArrowRight", times=5)
    after = page.run("studio.read().terms[0][0].lengthscale")
    assert after > number
    assert picture(page) != before
    assert f"lengthscale={after}" in text(page, "python")
    assert page.run("document.getElementById('terms-0-0-lengthscale').getAttribute('aria-valuetext')").startswith(
        f"{after:.4g}"
    )
    assert page.run("document.activeElement.id") == "terms-0-0-lengthscale"
    page.wait(f"decodeURIComponent(location.hash).includes('{after}')")
    page.wait("document.getElementById('announce').textContent.includes('Matern52')")


def test_functions_move_smoothly_with_a_slider(page):
    """A small step of the length scale moves the drawn functions a little: halving the step halves the move."""
    moves = page.run("""(() => {
        const kernel = (lengthscale) => ({kind: "RBF", lengthscale, variance: 1});
        const draw = studio.drawn;
        const far = (a, b) => Math.max(...a.map((value, i) => Math.abs(value - b[i])));
        return [0.02, 0.01, 0.005].map((step) => far(draw(kernel(2)), draw(kernel(2 + step))));
    })()""")
    assert moves[0] < 0.2
    assert moves[0] / moves[1] == pytest.approx(2, rel=0.2)
    assert moves[1] / moves[2] == pytest.approx(2, rel=0.2)


def test_the_page_agrees_with_python_in_the_browser_too(page):
    for name in ("sum of products", "RBF, a length scale for each input", "both"):
        case = all_cases()[name]
        ours, theirs = python_numbers(case), page.run(f"studio.numbersOf({json.dumps(case)})")
        assert theirs["sentences"] == ours["sentences"]
        assert theirs["logEvidence"] == pytest.approx(ours["logEvidence"], rel=1e-6)
        np.testing.assert_allclose(theirs["mean"], ours["mean"], atol=1e-6)


def test_a_dropped_table_is_shown_in_its_own_units_with_posterior_and_evidence(page):
    drop(page, WAVE)
    assert page.run("studio.read().targets") == ["level"]
    assert "in hours" in text(page, "slots")
    assert not page.run("document.getElementById('posterior-figure').hidden")
    page.wait("studio.bars().every(({value}) => value !== null)")
    bars = {bar["id"]: bar["value"] for bar in page.run("studio.bars()")}
    assert bars["current"] == pytest.approx(bars["Matern52"])
    assert bars["Matern52"] > bars["Linear"]
    # Live: another noise, another evidence.
    type_number(page, "noise-slider-number", "0.5")
    assert page.run("studio.evidence()") != pytest.approx(bars["current"])
    page.wait(f"studio.bars().every(({{id, value}}) => Math.abs(value - {json.dumps(bars)}[id]) > 1e-6)")


def test_every_move_of_a_slider_is_drawn_and_timed(page):
    """How long it takes is measured by `benchmarks/studio_speed.py`, on a quiet machine."""
    drop(page, WAVE)
    page.run("studio.times.length = 0")
    page.run("""(async () => { const slider = document.getElementById("terms-0-0-lengthscale");
        for (let k = 0; k < 5; k++) { slider.value = Number(slider.value) + 1; slider.dispatchEvent(new Event("input"));
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))); } })()""")
    assert len(page.run("studio.times")) == 5


def test_sums_and_products_are_built_by_clicking(page):
    choose(page, "add-terms", "Periodic")
    choose(page, "times-terms-0", "Linear")
    assert text(page, "formula") == "(Matern52 x Linear) + Periodic"
    assert "Functions repeat with period" in text(page, "sentences")
    choose(page, "kind-terms-1-0", "Matern12")
    assert text(page, "formula") == "(Matern52 x Linear) + Matern12"
    click(page, "remove-terms-0-1")
    click(page, "remove-terms-0-0")
    assert text(page, "formula") == "Matern12"
    click(page, "remove-terms-0-0")
    assert "at least one kernel" in text(page, "messages")
    assert text(page, "formula") == "Matern12"


def test_every_kernel_can_be_chosen_and_drawn(page):
    drop(page, WAVE)
    kinds = page.run("[...document.getElementById('kind-terms-0-0').options].map((option) => option.value)")
    assert len(kinds) == 12
    for kind in kinds:
        choose(page, "kind-terms-0-0", kind)
        assert text(page, "formula") == kind
        assert "cannot be drawn" not in text(page, "sentences")
        assert np.isfinite(page.run("studio.evidence()"))


def test_the_three_questions_set_the_parameters(page):
    drop(page, WAVE)
    choose(page, "kind-terms-0-0", "RBF")
    for name, number in (("far", "3"), ("large", "5"), ("noisy", "0.2")):
        type_number(page, f"question-{name}", number)
    kernel = page.run("studio.read().terms[0][0]")
    # The correlation of an RBF is 0.1 at √(2 log 10) length scales.
    assert kernel["lengthscale"] == pytest.approx(3 / np.sqrt(2 * np.log(10)), rel=1e-3)
    assert kernel["variance"] == pytest.approx((5 / 2) ** 2, rel=1e-3)
    assert page.run("studio.read().noise") == 0.2
    type_number(page, "question-large", "-1")
    assert "above zero" in text(page, "messages")


def test_the_fit_finds_the_parameters_that_python_finds(page):
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 10, 80))
    y = 20 + 3 * np.sin(1.3 * x) + 0.3 * generator.normal(size=80)
    drop(page, "t,v\n" + "\n".join(f"{a:.6f},{b:.6f}" for a, b in zip(x, y, strict=True)))
    choose(page, "kind-terms-0-0", "RBF")
    before = page.run("studio.evidence()")
    click(page, "fit")
    page.wait("document.getElementById('fit-result').textContent.startsWith('Fitted')")
    page.settle()
    state, found = page.run("studio.read()"), page.run("studio.evidence()")
    assert found > before + 1
    case = {
        "kernel": state["terms"][0][0], "mean": state["mean"], "noise": state["noise"], "width": 1,
        "x": x.round(6)[:, None].tolist(), "y": y.round(6)[:, None].tolist(), "points": [[5.0]],
    }  # fmt: skip
    assert python_numbers(case)["logEvidence"] == pytest.approx(found, abs=1e-6)
    # At the maximum no parameter can be moved by 2 % for the better.
    for name in ("lengthscale", "variance"):
        for factor in (0.98, 1.02):
            moved = case | {"kernel": case["kernel"] | {name: case["kernel"][name] * factor}}
            assert python_numbers(moved)["logEvidence"] < found + 1e-3
    for factor in (0.98, 1.02):
        assert python_numbers(case | {"noise": case["noise"] * factor})["logEvidence"] < found + 1e-3


def test_copy_puts_python_and_the_command_on_the_clipboard(page):
    drop(page, WAVE, "it's mine.csv")
    click(page, "copy-python")
    page.wait("document.getElementById('copied').textContent.startsWith('Python')")
    copied = page.run("navigator.clipboard.readText()")
    names: dict = {}
    exec(copied, names)
    state = page.run("studio.read()")
    assert float(names["prior"].variance(jnp.zeros((1, 1)))[0, 0]) == pytest.approx(state["terms"][0][0]["variance"])
    click(page, "copy-command")
    page.wait("document.getElementById('copied').textContent.startsWith('Command')")
    words = shlex.split(page.run("navigator.clipboard.readText()"))
    assert words[:5] == ["fsplaplace", "fit", "it's mine.csv", "--target", "level"]
    # The command's kernel is the page's, in units of the table: one column and target of spread 1.
    built = Prior(kernel_by_name(words[words.index("--kernel") + 1], 1, ard=False))
    x = jnp.linspace(0, 3, 7)[:, None]
    np.testing.assert_allclose(built.gram(x), names["prior"].gram(x), rtol=1e-5)


def test_a_table_with_dates_and_gaps_is_shown_in_years_and_the_command_fits_it(page):
    rows = [(f"20{10 + k // 12}-{k % 12 + 1:02d}-15", 70 + k % 5, 200 + 30 * np.sin(k / 2)) for k in range(60)]
    drop(
        page,
        "date,town,rain,level\n"
        + "".join(f"{d},Ulm,{'' if k == 7 else r},{y:.2f}\n" for k, (d, r, y) in enumerate(rows)),
    )
    assert page.run("studio.read().inputs") == ["date", "rain"]
    assert "column “date” holds dates" in text(page, "data-body")
    assert "in years" in text(page, "slots")
    assert '"date" in years' in text(page, "python")
    assert "length scales of several inputs" in text(page, "command-note")
    # A date cannot be predicted.
    assert page.run("[...document.getElementById('target-0').options].map(({value}) => value)") == ["rain", "level"]
    choose(page, "kind-terms-0-0", "RBF")
    choose(page, "times-terms-0", "Periodic")
    click(page, "input-terms-0-1-1")
    assert text(page, "command-note") == ""
    words = shlex.split(text(page, "command"))
    assert words[3:8] == ["--target", "level", "--features", "date,rain", "--drop-missing"]
    # The command's kernel in the units of `fit`, which standardises, is the page's.
    names: dict = {}
    exec(text(page, "python"), names)
    std, size = np.array([1.4, 2.5]), 21.0
    built = kernel_by_name(words[-1], 2, ard=True, columns=Columns(("date", "rain"), std, size))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2)))
    np.testing.assert_allclose(size**2 * Prior(built).gram(x), names["prior"].gram(x * std), rtol=1e-4, atol=1e-2)


def test_the_command_writes_every_sum_and_product_that_fit_can_read(page):
    choose(page, "example", "3")
    click(page, "input-terms-0-0-2")
    choose(page, "add-terms", "Linear")
    command = shlex.split(text(page, "command"))
    columns = page.run("studio.read().inputs") or ["x"]
    kernel = kernel_by_name(
        command[command.index("--kernel") + 1],
        len(columns),
        ard=False,
        columns=Columns(tuple(columns), np.ones(len(columns))),
    )
    assert [part.active_dims for part in kernel.kernels] == [[0, 1], slice(None)]
    choose(page, "add-terms", "Polynomial")
    assert "has no name for this kernel" in text(page, "command")


def test_a_link_shows_the_same_prior(page, empty):
    choose(page, "add-terms", "Periodic")
    page.wait("location.hash.includes('Periodic')")
    address, state = page.run("location.href"), page.run("studio.read()")
    page.open(address)
    assert page.run("studio.read()") == state


def test_several_inputs_are_shown_as_slices(page):
    choose(page, "example", "3")
    assert not page.run("document.getElementById('slices').hidden")
    before = picture(page, "posterior")
    type_number(page, "at-1-number", "4.5")
    assert picture(page, "posterior") != before
    choose(page, "axis", "1")
    assert "at temperature" in text(page, "slices")
    click(page, "input-terms-0-0-2")
    assert page.run("studio.read().terms[0][0].columns") == [0, 1]
    assert "active_dims=[0, 1]" in text(page, "python")
    assert len(page.run("studio.read().terms[0][0].lengthscale")) == 2


def test_a_vector_field_has_a_helmholtz_prior(page):
    choose(page, "example", "4")
    assert text(page, "formula") == "Helmholtz"
    assert "fsp.kernels.Helmholtz(" in text(page, "python")
    page.wait("studio.bars().every(({value}) => value !== null)")
    bars = {bar["id"]: bar["value"] for bar in page.run("studio.bars()")}
    # The example is a swirl and a constant: a field without sources.
    assert bars["RBF stream"] > bars["RBF potential"]
    before = picture(page)
    page.run("document.getElementById('stream-0-0-lengthscale').focus()")
    page.press("ArrowLeft", times=5)
    assert picture(page) != before


BAD_TABLES = {
    "text in a column": ("a,town,b\n" + "".join(f"{i},Ulm,{i * i}\n" for i in range(9)), "column “town” holds text", 2),
    "missing values": (
        "a,b\n" + "".join(f"{i},{'' if i % 3 else i}\n" for i in range(12)),
        "8 rows without a number",
        2,
    ),
    "dates in an order that is not sure": (
        "when,a,b\n" + "".join(f"{i + 1}/02/2020,{i},{i * i}\n" for i in range(9)),
        "“1/02/2020” may be a date",
        2,
    ),
    "thousands or decimals": ('a,b\n"1,234",2\n"2,345",3\n"3,456",5\n', "“1,234” is read as 1.234", 2),
    "no header": ("".join(f"{i},{i * i}\n" for i in range(9)), "no header", 2),
    "ragged": ("a,b\n1,2\n2,3,4\n3,4\n", "1 row had another number of cells", 2),
    "semicolons and decimal commas": ("a;b\n0,5;1,5\n1,5;2\n2,5;3\n", "", 2),
    "constant": ("a,b\n" + "1,5\n" * 6, "", 2),
    "duplicate rows": ("a,b\n" + "1,5\n2,6\n" * 20, "", 2),
    "huge and tiny": ("a,b\n1e-300,1e12\n2e-300,2e12\n3e-300,1.5e12\n", "", 2),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_bad_table_is_used_as_far_as_it_goes_and_the_page_says_what_is_left_out(name, page):
    content, words, columns = BAD_TABLES[name]
    drop(page, content)
    assert words in text(page, "data-body")
    assert f"{columns} columns of numbers" in text(page, "data-body")
    assert page.run("studio.evidence() === null || Number.isFinite(studio.evidence())")
    type_number(page, "noise-slider-number", "0.3")
    assert page.run("studio.read().noise") == 0.3


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is empty"), ("a\n1\n2\n", "1 column of numbers"), ("a,b\nx,y\nz,w\n", "0 columns of numbers"), ("a,b\n", "no rows"), ("a,b\n1,2\n", "only 1 row")],
)  # fmt: skip
def test_a_table_without_use_is_refused_and_what_was_there_stays(content, words, page):
    drop(page, WAVE)
    before = page.run("studio.evidence()")
    drop(page, content, "bad.csv")
    assert words in text(page, "messages")
    assert page.run("studio.evidence()") == before
    choose(page, "kind-terms-0-0", "RBF")
    assert text(page, "messages") == ""


def test_a_hundred_thousand_rows_are_a_sample_and_the_page_says_so(page):
    drop(page, "x,y\n", row_text="1.5,2\n2.5,3\n")
    page.wait("document.getElementById('data-body').textContent.includes('random sample of 300')")
    assert "200,000 rows" in text(page, "data-body")
    assert np.isfinite(page.run("studio.evidence()"))


def test_impossible_numbers_are_refused_in_words_and_the_old_ones_stay(page):
    for typed, words in (("-2", "above zero"), ("0", "above zero"), ("abc", "not a number"), ("", "not a number")):
        type_number(page, "terms-0-0-lengthscale-number", typed)
        assert words in text(page, "messages")
        assert page.run("studio.read().terms[0][0].lengthscale") == 2
    type_number(page, "draws", "1000")
    assert "1 to 20" in text(page, "messages")
    for huge in ("1e300", "1e-300"):
        type_number(page, "terms-0-0-lengthscale-number", huge)
        assert picture(page)
    type_number(page, "terms-0-0-variance-number", "1e200")
    assert "cannot be drawn" in text(page, "sentences")
    type_number(page, "terms-0-0-variance-number", "1")
    type_number(page, "terms-0-0-lengthscale-number", "2")
    assert "cannot be drawn" not in text(page, "sentences")


def test_a_matrix_that_rounding_makes_indefinite_is_mended_and_said(page):
    drop(page, "x,y\n" + "".join(f"{i / 100},{i % 3}\n" for i in range(150)))
    choose(page, "kind-terms-0-0", "RBF")
    type_number(page, "noise-slider-number", "1e-12")
    type_number(page, "terms-0-0-lengthscale-number", "50")
    assert "Rounding made the covariance matrix not positive definite" in text(page, "sentences")
    assert np.isfinite(page.run("studio.evidence()"))


@pytest.mark.parametrize(
    "hash_text",
    ["nonsense", quote('{"mode":"function"}'), quote("[1]"), "%E0%A4%A", quote('{"mode":"function","inputs":["x"],"targets":["y"],"terms":[[{"kind":"__proto__"}]],"potential":[],"stream":[]}')],
)  # fmt: skip
def test_a_bad_address_is_said_and_the_page_works(hash_text, page, empty):
    page.open(f"{empty}#{hash_text}")
    assert "address of this page" in text(page, "messages")
    choose(page, "kind-terms-0-0", "RBF")
    assert text(page, "formula") == "RBF"


def test_nothing_in_a_table_is_executed(page):
    attack = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"
    drop(
        page,
        f'"{attack}","b\nimport os",{attack}2\n' + "".join(f"{i},{i * i},{i % 4}\n" for i in range(9)),
        f"{attack}.csv",
    )
    assert attack in text(page, "data-body")
    assert page.run("window.hacked") is None
    assert page.run("document.querySelectorAll('img, script').length") == 2
    # A line break in a name cannot leave its string and become a line of Python.
    compiled = text(page, "python")
    assert "\nimport os" not in compiled
    compile(compiled, "copied", "exec")


def test_a_script_that_gets_in_anyway_is_stopped_by_the_policy(browser, empty):
    browser.open(empty)
    browser.run("""(() => { const bad = document.createElement("script"); bad.textContent = "window.hacked = 1";
        document.body.append(bad); })()""")
    assert browser.run("window.hacked") is None
    assert browser.run("fetch('https://example.org').then(() => 'sent', () => 'stopped')") == "stopped"


@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_fits_its_window(width, page):
    page.size(width, 850, dark=width == 400)
    choose(page, "example", "3")
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.documentElement.dataset.theme") == ("dark" if width == 400 else "light")
    choose(page, "theme", "light")
    assert page.run("document.documentElement.dataset.theme") == "light"


def test_a_trend_far_from_zero_is_said_to_be_level(page):
    drop(page, "year,v\n" + "".join(f"{1960 + i},{i % 5}\n" for i in range(30)))
    assert "almost level" not in text(page, "sentences")
    choose(page, "add-terms", "Linear")
    assert "Lines through zero are almost level where year is about 1970" in text(page, "sentences")


def test_every_control_has_a_name(page):
    choose(page, "example", "3")
    unnamed = page.run("""[...document.querySelectorAll("button, input, select, canvas, pre")].filter((control) => !(
        control.getAttribute("aria-label") || control.labels?.length || control.textContent.trim())).map((control) => control.outerHTML)""")
    assert unnamed == []
    repeated = page.run("""(() => { const ids = [...document.querySelectorAll("[id]")].map(({id}) => id);
        return ids.filter((id, k) => ids.indexOf(id) !== k); })()""")
    assert repeated == []


def test_the_command_writes_a_page_that_opens_with_its_table(browser, folder):
    (folder / "data.csv").write_text("a,level,town\n" + "".join(f"{i},{i % 7},</script>\n" for i in range(3000)))
    done = CliRunner().invoke(
        app, ["studio", str(folder / "data.csv"), "--target", "level", "--out", str(folder / "s.html"), "--no-open"]
    )
    assert done.exit_code == 0, done.output
    browser.errors.clear()
    browser.open((folder / "s.html").resolve().as_uri())
    assert browser.run("studio.read().targets") == ["level"]
    assert browser.run("studio.read().inputs") == ["a"]
    assert "3,000 rows" in text(browser, "data-body")
    assert "column “town” holds text" in text(browser, "data-body")
    # A target that holds text is said, and the page works with another.
    browser.open(write_studio(folder / "t.html", folder / "data.csv", target="town").resolve().as_uri())
    assert "“town” is no column of numbers" in text(browser, "messages")
    assert browser.run("studio.read().targets") == ["level"]
    (folder / "words.csv").write_text("a,b\nx,y\nz,w\n")
    browser.open(write_studio(folder / "w.html", folder / "words.csv").resolve().as_uri())
    assert "0 columns of numbers" in text(browser, "messages")
    assert text(browser, "formula") == "Matern52"
    assert browser.errors == []

"""The report is made of whole results only, and shows ours beside the paper's."""

import pytest

from fsplaplace.experiments._records import write_record
from fsplaplace.experiments._runner import RESULT
from fsplaplace.experiments.report import write_report


def result(preset="cpu", value=3.5):
    return {
        "name": "mauna-loa", "title": "CO2 <forecast>", "place": "Table 1", "preset": preset, "settings": {"steps": 1},
        "seeds": 2, "versions": {"python": "3"}, "machine": "2 cores", "seconds": 4.0, "verdict": f"MSE {value}",
        "scores": {"mse": ["MSE |e|", "{:.2f}", "lower"]},
        "counterparts": {"FSP-Laplace, new": "FSP-Laplace", "FSP-Laplace, old": "FSP-Laplace", "GP": "GP"},
        "summary": [
            {"task": "t", "method": "FSP-Laplace, new", "scores": {"mse": {"mean": value, "error": 0.25, "seeds": 2}}},
            {"task": "t", "method": "FSP-Laplace, old", "scores": {"mse": {"mean": 77.0, "error": 0.0, "seeds": 1}}},
            {"task": "t", "method": "GP", "scores": {"mse": {"mean": 22.0, "error": 0.0, "seeds": 1}}},
            {"task": "t", "method": "other", "scores": {"mse": {"mean": 9.0, "error": 0.0, "seeds": 1}}},
        ],
        "published": [
            {"task": "t", "method": "FSP-Laplace", "score": "mse", "mean": 8.9, "error": 1.15},
            {"task": "t", "method": "GP", "score": "mse", "mean": 35.66, "error": 0.0},
        ],
        "notes": ["not the same split"], "choices": {"t--ours--seed0": {"noise": 0.19}}, "rows": [], "figures": ["a.png"],
    }  # fmt: skip


def pages(tmp_path):
    return [path.read_text() for path in write_report(tmp_path, tmp_path / "report")]


def test_ours_stand_beside_the_papers_with_their_budget(tmp_path):
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result())
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    index, page = pages(tmp_path)
    table = [
        r"MSE \|e\| ↓:",
        "",
        "|  | FSP-Laplace | GP |",
        "|---|---|---|",
        "| **paper** | **8.90** ± 1.15 | **35.66** |",
        "| ours, new<small>1 steps</small> | 3.50 ± 0.25 | 22.00 |",
        "| ours, old<small>1 steps</small> | 77.00 | – |",
    ]
    assert "\n".join(table) in index
    assert "\n".join(table) in page
    assert "CO2 &lt;forecast&gt;" in index
    assert "not the same split" in page
    assert (tmp_path / "report/a.png").read_bytes() == b"\x89PNG"


def test_medians_and_causes_stand_where_the_experiment_has_them(tmp_path):
    scores = {"regret": {"mean": 0.5, "error": 0.25, "median": 0.125, "seeds": 2}}
    found = result() | {
        "name": "bayesian-optimisation", "scores": {"regret": ["regret", "{:.3f}", "lower"]}, "published": [],
        "counterparts": {}, "summary": [{"task": "t", "method": "GP", "scores": scores}], "choices": {},
    }  # fmt: skip
    write_record(tmp_path / "bayesian-optimisation-cpu.json", RESULT, found)
    page = pages(tmp_path)[1]
    assert "0.500 ± 0.250, median 0.125" in page
    assert "**Where ours differ:** PDE" in page


def test_thorough_presets_are_shown_and_the_quick_one_only_alone(tmp_path):
    write_record(tmp_path / "mauna-loa-quick.json", RESULT, result("quick", 7.25))
    assert "7.25" in pages(tmp_path)[1]
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result("cpu", 3.5))
    write_record(tmp_path / "mauna-loa-paper.json", RESULT, result("paper", 2.5))
    index, page = pages(tmp_path)
    assert "7.25" not in page
    assert index.index("MSE 2.5") < index.index("MSE 3.5")
    assert page.index("2.50 ±") < page.index("3.50 ±")


def test_text_of_a_result_is_never_markup(tmp_path):
    found = result() | {"title": "a | b <script> `c` *d* [e](f)"}
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, found)
    page = pages(tmp_path)[1]
    assert page.startswith(r"# a \| b &lt;script&gt; \`c\` \*d\* \[e\](f)")


def test_a_half_written_result_is_named_and_not_read(tmp_path):
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result())
    (tmp_path / "ocean-cpu.json").write_text((tmp_path / "mauna-loa-cpu.json").read_text()[:300])
    assert "**Not read:** ocean-cpu.json" in pages(tmp_path)[0]
    (tmp_path / "mauna-loa-cpu.json").unlink()
    with pytest.raises(ValueError, match="no result"):
        write_report(tmp_path, tmp_path / "report")


def test_the_paper_s_tables_come_first_and_those_not_run_are_printed_without_ours(tmp_path):
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result())
    index = pages(tmp_path)[0]
    places = [index.index(title) for title in ("## The paper's tables", "[CO2", "### Regression tables", "## The paper's figures", "### Sine")]  # fmt: skip
    assert places == sorted(places)
    assert "| **boston, paper** | **-0.641** ± 0.084 |" in index
    # A link to a page that is not there would lead nowhere.
    assert "](uci.md)" not in index

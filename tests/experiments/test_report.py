"""The report is made of whole results only, and shows ours beside the paper's."""

import re

import pytest

from fsplaplace.experiments._records import write_record
from fsplaplace.experiments._runner import RESULT
from fsplaplace.experiments.report import write_report


def result(preset="cpu", value=3.5):
    return {
        "name": "mauna-loa", "title": "CO2 <forecast>", "place": "Table 1", "preset": preset, "settings": {"steps": 1},
        "seeds": 2, "versions": {"python": "3"}, "machine": "2 cores", "seconds": 4.0, "verdict": f"MSE {value}",
        "scores": {"mse": ["MSE", "{:.2f}", "lower"]}, "counterparts": {"ours": "FSP-Laplace"},
        "summary": [
            {"task": "t", "method": "ours", "scores": {"mse": {"mean": value, "error": 0.25, "seeds": 2}}},
            {"task": "t", "method": "other", "scores": {"mse": {"mean": 9.0, "error": 0.0, "seeds": 1}}},
        ],
        "published": [{"task": "t", "method": "FSP-Laplace", "score": "mse", "mean": 8.9, "error": 1.15}],
        "notes": ["not the same split"], "choices": {"t--ours--seed0": {"noise": 0.19}}, "rows": [], "figures": ["a.png"],
    }  # fmt: skip


def test_ours_the_papers_and_the_difference_stand_together(tmp_path):
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result())
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    page = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert "3.50 ± 0.25<small>paper 8.90 ± 1.15; −5.40</small>" in page
    assert "CO2 &lt;forecast&gt;" in page
    assert "not the same split" in page
    assert "data:image/png;base64," in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)  # self-contained


def test_the_most_thorough_preset_is_shown(tmp_path):
    write_record(tmp_path / "mauna-loa-quick.json", RESULT, result("quick", 7.25))
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result("cpu", 3.5))
    page = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert "MSE 3.5" in page
    assert "7.25" not in page


def test_a_half_written_result_is_named_and_not_read(tmp_path):
    write_record(tmp_path / "mauna-loa-cpu.json", RESULT, result())
    (tmp_path / "ocean-cpu.json").write_text((tmp_path / "mauna-loa-cpu.json").read_text()[:300])
    page = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert "Not read: ocean-cpu.json" in page
    (tmp_path / "mauna-loa-cpu.json").unlink()
    with pytest.raises(ValueError, match="no result"):
        write_report(tmp_path, tmp_path / "report.html")

"""Pages from result files: the paper's tables with our numbers beside them, every figure, settings, what is not comparable."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from fsplaplace._version import __version__
from fsplaplace.experiments import get, names
from fsplaplace.experiments._experiment import Summary
from fsplaplace.experiments._records import ResultFormatError, read_record
from fsplaplace.experiments._runner import RESULT
from fsplaplace.host import write_atomically

# The most thorough first: its figures are shown, and its rows come first.
_PRESETS = ("paper", "cpu", "quick")
_WITHOUT_STEPS = ("GP", "Sparse GP")


def write_report(results: str | Path, pages: str | Path) -> list[Path]:
    """Write Markdown pages from all results in a directory: an index and one page for each experiment.

    Args:
        results: the directory that `fsplaplace.experiments.reproduce` wrote to.
        pages: the directory of the pages; figures are copied beside them.

    Of an experiment with several presets all but "quick" are shown, each row with its number of training steps; a result of
    "quick" is shown where there is no other. A file that is not a whole result is named in the index and not read.
    Returns the pages, the index first. Time and memory: those of the figures.
    """
    results, pages = Path(results), Path(pages)
    if not results.is_dir():
        raise FileNotFoundError(f"{results} is not a directory; run `fsplaplace reproduce NAME --out {results}` first")
    found, refused = _read(results)
    if not found:
        raise ValueError(
            f"{results} holds no result of an experiment; run `fsplaplace reproduce NAME --out {results}` first"
        )
    pages.mkdir(parents=True, exist_ok=True)
    written = []
    for name, presets in found.items():
        written.append(pages / f"{name}.md")
        write_atomically(written[-1], _page(presets, results, pages).encode())
    index = pages / "index.md"
    write_atomically(index, _index(found, refused).encode())
    return [index, *written]


def _read(results: Path) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Experiment -> its results, the most thorough preset first; and what could not be read."""
    found: dict[str, list[dict[str, Any]]] = {}
    refused = []
    for path in sorted(results.glob("*-*.json")):
        try:
            result = read_record(path, RESULT)
        except ResultFormatError as error:
            if "is not a fsplaplace" not in str(error):
                refused.append(str(error).replace(f"{path}", path.name))
            continue
        found.setdefault(result["name"], []).append(result)
    for name, presets in found.items():
        thorough = [result for result in presets if result["preset"] != "quick"]
        found[name] = sorted(thorough or presets, key=lambda result: _PRESETS.index(result["preset"]))
    order = (*names(), *found)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]))), refused


def _index(found: dict[str, list[dict[str, Any]]], refused: list[str]) -> str:
    parts = [_INDEX]
    parts += [f"**Not read:** {_text(line)}" for line in refused]
    for name, presets in found.items():
        parts.append(f"## [{_text(presets[0]['title'])}]({name}.md)")
        parts.append(
            f"{_text(presets[0]['place'])}. Command: `fsplaplace reproduce {name} --preset {presets[0]['preset']}`."
        )
        parts += [_paper_table(presets)] if presets[0]["published"] else []
        parts += [f"- {_budget(result)}: {_text(_verdict(result))}" for result in presets]
    parts.append(f"Made by fsplaplace {__version__} from its result files alone.")
    return "\n\n".join(parts) + "\n"


def _page(presets: list[dict[str, Any]], directory: Path, pages: Path) -> str:
    first = presets[0]
    parts = [f"# {_text(first['title'])}", f"{_text(first['place'])}."]
    parts.append("\n".join(f"- {_budget(result)}: {_text(_verdict(result))}" for result in presets))
    if first["published"]:
        parts += ["## The paper's table, ours beside it", _paper_table(presets)]
    parts += ["## All scores", _KEY]
    for task in dict.fromkeys(row["task"] for result in presets for row in result["summary"]):
        parts += [f"### {_text(task)}", _score_table(presets, task)]
    drawn = [[_figure(directory / name, pages, result) for name in result["figures"]] for result in presets]
    parts += ["## Figures", *drawn[0]] if drawn[0] else []
    for result, figures in zip(presets[1:], drawn[1:], strict=True):
        if figures:
            parts += [
                f"<details markdown><summary>Figures of the preset {result['preset']}</summary>",
                *figures,
                "</details>",
            ]
    notes = dict.fromkeys(note for result in presets for note in result["notes"])
    parts += ["## Not comparable, and why", "\n".join(f"- {_text(note)}" for note in notes)]
    parts += ["## How it was run", *(_settings(result) for result in presets)]
    return "\n\n".join(parts) + "\n"


def _paper_table(presets: list[dict[str, Any]]) -> str:
    """Every number that the paper prints, and our rows that stand for it, with their training steps."""
    first = presets[0]
    tasks = list(dict.fromkeys(printed["task"] for printed in first["published"]))
    scores = list(dict.fromkeys(printed["score"] for printed in first["published"]))
    paper = {(p["task"], p["method"], p["score"]): p for p in first["published"]}
    lines = [["task", "method", *(f"{first['scores'][name][0]}{_arrow(first['scores'][name][2])}" for name in scores)]]
    for task in tasks:
        for method in dict.fromkeys(p["method"] for p in first["published"] if p["task"] == task):
            printed = [_printed(paper.get((task, method, name)), first["scores"][name][1]) for name in scores]
            lines.append([_text(task), f"**{_text(method)}, paper**", *printed])
            ours = [
                (result, row)
                for result in presets
                for row in result["summary"]
                if row["task"] == task and result["counterparts"].get(row["method"]) == method
            ]
            for result, row in ours:
                cells = [_number(row, name, first["scores"][name][1]) for name in scores]
                lines.append(["", f"{_text(row['method'])}{_steps(result, row['method'])}", *cells])
            if not ours:
                lines.append(["", "not run here", *("–" for _ in scores)])
    return _table(lines)


def _score_table(presets: list[dict[str, Any]], task: str) -> str:
    """A row for each method and preset, a column for each score, the best in bold."""
    rows = [(result, row) for result in presets for row in result["summary"] if row["task"] == task]
    scores = presets[0]["scores"]
    printed = {number["score"] for number in presets[0]["published"]}
    shown = [
        name
        for name in scores
        if any(name in row["scores"] for _, row in rows) and (not name.endswith("_standardised") or name in printed)
    ]
    best = {name: _best([row for _, row in rows], name, scores[name][2]) for name in shown}
    lines = [["method", *(f"{scores[name][0]}{_arrow(scores[name][2])}" for name in shown)]]
    for result, row in rows:
        cells = [_number(row, name, scores[name][1], best[name]) for name in shown]
        lines.append([f"{_text(row['method'])}{_steps(result, row['method'])}", *cells])
    return _table(lines)


def _number(row: dict[str, Any], name: str, form: str, best: float | None = None) -> str:
    found = row["scores"].get(name)
    if found is None:
        return "no value"
    error = f" ± {_plain(found['error'], form)}" if found["seeds"] > 1 else ""
    text = f"{_plain(found['mean'], form)}{error}"
    return f"**{text}**" if found["mean"] == best else text


def _printed(printed: dict[str, Any] | None, form: str) -> str:
    if printed is None:
        return "–"
    return f"**{_plain(printed['mean'], form)}**" + (f" ± {_plain(printed['error'], form)}" if printed["error"] else "")


def _plain(value: float, form: str) -> str:
    """Large numbers are written out, as the paper does."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else form.format(value)


def _best(rows: list[dict], name: str, better: str) -> float | None:
    values = [row["scores"][name]["mean"] for row in rows if name in row["scores"]]
    if not better or len(values) < 2:
        return None
    return min(values) if better == "lower" else max(values)


def _verdict(result: dict[str, Any]) -> str:
    """In today's words, from the rows of the result; in its own where the experiment is not known any more."""
    if result["name"] not in names() or not result["rows"]:
        return result["verdict"]
    return get(result["name"]).verdict(Summary(result["rows"]))


def _budget(result: dict[str, Any]) -> str:
    steps = result["settings"].get("steps")
    seeds = f"{result['seeds']} seed{'s' if result['seeds'] > 1 else ''}"
    missing = len(result.get("missing", ()))
    some = f", {missing} cells not run yet" if missing else ""
    return f"**Preset {result['preset']}** ({f'{steps:,} training steps, ' if steps else ''}{seeds}{some})"


def _steps(result: dict[str, Any], method: str) -> str:
    settings = result["settings"]
    steps = settings.get("fvi_steps", settings.get("steps")) if method == "FVI" else settings.get("steps")
    return "" if method in _WITHOUT_STEPS or steps is None else f"<small>{steps:,} steps</small>"


def _figure(path: Path, pages: Path, result: dict[str, Any]) -> str:
    if not path.is_file():
        return f"The figure {_text(path.name)} is missing; run the experiment again."
    if path.parent.resolve() != pages.resolve():
        shutil.copy(path, pages / path.name)
    key = path.stem.removeprefix(f"{result['name']}-{result['preset']}-")
    known = get(result["name"]).captions if result["name"] in names() else {}
    caption = known.get(key, f"{result['title']}: {key.replace('-', ' ')}.")
    return f"![{_text(caption)}]({path.name})\n\n*{_text(caption)} Preset {result['preset']}.*"


def _settings(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    chosen = {name: value for name, value in result["choices"].items() if name.endswith("seed0")}
    return "\n\n".join(
        [
            f"Preset {result['preset']}: {result['seconds']:,.0f} s in all on {_text(result['machine'])}; {_text(versions)}.",
            f"```json\n{json.dumps(result['settings'], indent=1)}\n```",
            "How hyper-parameters were chosen, first seed:",
            f"```json\n{json.dumps(_rounded(chosen), indent=1)}\n```",
        ]
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _table(lines: list[list[str]]) -> str:
    head, *body = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])


def _arrow(better: str) -> str:
    return {"lower": " ↓", "higher": " ↑"}.get(better, "")


def _text(value: str) -> str:
    """Plain text in a cell of a Markdown table: nothing in it is markup."""
    return re.sub(r"([\\`*_\[\]|#$])", r"\\\1", value).replace("<", "&lt;").replace(">", "&gt;")


_KEY = "Mean ± standard error over seeds; the best of each column in bold; arrows point to the better side."

_INDEX = """# Results beside the paper

The numbers that the paper prints, in bold, and ours below them. The method has three rows: the covariance form with its refined
mean (this library's default), the same form with the network's own mean, and the paper's precision form. The number of training
steps stands with each row: the preset `paper` takes the authors' number, `cpu` a number that two cores finish in minutes, and a
bad row after few steps says little about its method.
"""

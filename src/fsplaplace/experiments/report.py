"""Pages from result files: the paper's tables with our numbers beside them, every figure, settings, what is not comparable."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from fsplaplace._version import __version__
from fsplaplace.experiments import get, names
from fsplaplace.experiments._experiment import Experiment, Summary
from fsplaplace.experiments._records import ResultFormatError, read_record
from fsplaplace.experiments._runner import RESULT
from fsplaplace.host import write_atomically

# The most thorough first: its figures are shown, and its rows come first.
_PRESETS = ("paper", "cpu", "quick")


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
    """The paper's tables first, then what it shows as figures, then what is not in it."""
    parts = [_INDEX, *(f"**Not read:** {_text(line)}" for line in refused)]
    sections: dict[str, list[str]] = {"The paper's tables": [], "The paper's figures": [], "Not in the paper": []}
    # Tables of the text before those of the appendix.
    known = dict.fromkeys((*names(), *found))
    for name in sorted(known, key=lambda name: name in names() and get(name).place.startswith("Appendix")):
        presets = found.get(name) or [_not_run(name)]
        printed, ran = bool(presets[0]["published"]), bool(presets[0]["summary"])
        outside = presets[0]["place"].startswith("not in the paper")
        section = sections[list(sections)[0 if printed else 2 if outside else 1]]
        title, command = _text(presets[0]["title"]), f"`fsplaplace reproduce {name} --preset {presets[0]['preset']}`"
        section.append(f"### [{title}]({name}.md)" if ran else f"### {title}")
        missing = "" if ran else f" Not run to the end yet{': the numbers are the paper’s alone' if printed else ''}."
        place = presets[0]["place"]
        section.append(f"{_text(place[0].upper() + place[1:])}. Command: {command}.{missing}")
        section += [_paper_tables(presets)] if printed else []
        section += _difference(name) if ran else []
        section += ["\n".join(f"- {_budget(result)}: {_text(_verdict(result))}" for result in presets)] if ran else []
    for title, section in sections.items():
        parts += [f"## {title}", *section] if section else []
    parts.append(f"Made by fsplaplace {__version__} from its result files alone.")
    return "\n\n".join(parts) + "\n"


def _not_run(name: str) -> dict[str, Any]:
    """An experiment without a result: what the paper prints of it."""
    experiment = get(name)
    return {
        "title": experiment.title, "place": experiment.place, "preset": "cpu", "scores": experiment.scores, "summary": [],
        "counterparts": experiment.counterparts, "published": [number.as_dict() for number in experiment.published],
    }  # fmt: skip


def _page(presets: list[dict[str, Any]], directory: Path, pages: Path) -> str:
    first = presets[0]
    parts = [f"# {_text(first['title'])}", f"{_text(first['place'])}."]
    parts.append("\n".join(f"- {_budget(result)}: {_text(_verdict(result))}" for result in presets))
    if first["published"]:
        parts += ["## The paper's numbers, ours below them", _paper_tables(presets)]
    parts += _difference(first["name"])
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


def _paper_tables(presets: list[dict[str, Any]]) -> str:
    """A table for each score with the paper's columns: its methods; below each of its rows ours, with their training steps."""
    first = presets[0]
    printed = {(p["task"], p["method"], p["score"]): p for p in first["published"]}
    scores, methods = (list(dict.fromkeys(p[name] for p in first["published"])) for name in ("score", "method"))
    # Where we have several ways to do what the paper prints once, its row is printed once, too.
    rows: dict[str, list[str]] = {}
    for task in dict.fromkeys(p["task"] for p in first["published"]):
        values = [(p["mean"], p["error"]) for p in first["published"] if p["task"] == task]
        rows.setdefault(json.dumps(values), []).append(task)
    parts = []
    for score in scores:
        label, form, better = first["scores"][score]
        lines = [["", *map(_text, methods)]]
        for tasks in rows.values():
            name = "" if len(rows) == 1 else f"{_text(tasks[0])}, "
            lines.append([f"**{name}paper**", *(_printed(printed.get((tasks[0], m, score)), form) for m in methods)])
            for result in presets:
                for task in tasks:
                    lines += _our_lines(result, task, len(tasks) > 1, score, form, methods)
        title = f"{_text(label)}{_arrow(better)}"
        parts.append(f"{title[0].upper()}{title[1:]}:\n\n{_table(lines)}")
    return "\n\n".join(parts)


def _our_lines(
    result: dict[str, Any], task: str, name_task: bool, score: str, form: str, methods: list[str]
) -> list[list[str]]:
    """Our rows for one of the paper's: one for each way to run a method, the only way of others in the first of them."""
    ours: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for row in result["summary"]:
        if row["task"] == task and (method := result["counterparts"].get(row["method"])) in ours:
            ours[method].append(row)
    lines = []
    for number in range(max(map(len, ours.values()))):
        at = {method: rows[number] for method, rows in ours.items() if number < len(rows)}
        ways = [row["method"].removeprefix(f"{method}, ") for method, row in at.items() if row["method"] != method]
        label = ", ".join(["ours", *([task] if name_task else []), *ways[:1]])
        cells = [_number(at[m], score, form) + _own_steps(result, m) if m in at else "–" for m in methods]
        lines.append([f"{_text(label)}{_steps(result, next(iter(at)))}", *cells])
    return lines


def _own_steps(result: dict[str, Any], method: str) -> str:
    """The steps of a method that takes another number of them than its row says."""
    return _steps(result, method) if method == "FVI" and "fvi_steps" in result["settings"] else ""


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
    experiment = presets[0]["name"]
    medians = get(experiment).medians if experiment in names() else ()
    lines = [["method", *(f"{_text(scores[name][0])}{_arrow(scores[name][2])}" for name in shown)]]
    for result, row in rows:
        cells = [
            _number(row, name, scores[name][1], best[name])
            + (_median(row, name, scores[name][1]) if name in medians else "")
            for name in shown
        ]
        lines.append([f"{_text(row['method'])}{_steps(result, row['method'])}", *cells])
    return _table(lines)


def _number(row: dict[str, Any], name: str, form: str, best: float | None = None) -> str:
    found = row["scores"].get(name)
    if found is None:
        return "no value"
    error = f" ± {_plain(found['error'], form)}" if found["seeds"] > 1 else ""
    text = f"{_plain(found['mean'], form)}{error}"
    return f"**{text}**" if found["mean"] == best else text


def _median(row: dict[str, Any], name: str, form: str) -> str:
    """Of several seeds; results of older versions have none."""
    found = row["scores"].get(name, {})
    return f", median {_plain(found['median'], form)}" if "median" in found and found["seeds"] > 1 else ""


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


def _difference(name: str) -> list[str]:
    """What explains that our numbers are not the paper's, as the experiment knows it today."""
    known = get(name).difference if name in names() else ""
    return [f"**Where ours differ:** {_text(known)}"] if known else []


def _budget(result: dict[str, Any]) -> str:
    steps = result["settings"].get("steps")
    if all(row["method"] in _untrained(result) for row in result["rows"]):
        steps = None
    count = len({row["seed"] for row in result["rows"]}) or result["seeds"]
    seeds = f"{count} seed{'s' if count > 1 else ''}"
    missing = len(result.get("missing", ()))
    some = f", {missing} cells not run yet" if missing else ""
    return f"**Preset {result['preset']}** ({f'{steps:,} training steps, ' if steps else ''}{seeds}{some})"


def _untrained(result: dict[str, Any]) -> tuple[str, ...]:
    return (get(result["name"]) if result["name"] in names() else Experiment).untrained


def _steps(result: dict[str, Any], method: str) -> str:
    settings = result["settings"]
    steps = settings.get("fvi_steps", settings.get("steps")) if method == "FVI" else settings.get("steps")
    return "" if method in _untrained(result) or steps is None else f"<small>{steps:,} steps</small>"


def _figure(path: Path, pages: Path, result: dict[str, Any]) -> str:
    if not path.is_file():
        return f"The figure {_text(path.name)} is missing; run the experiment again."
    if path.parent.resolve() != pages.resolve():
        shutil.copy(path, pages / path.name)
    key = path.stem.removeprefix(f"{result['name']}-{result['preset']}-")
    known = get(result["name"]).captions if result["name"] in names() else {}
    caption = known.get(key, f"{result['title']}: {key.replace('-', ' ')}.")
    # A figure of many panels scrolls on a phone instead of shrinking.
    return f"![{_text(caption)}]({path.name}){{ .wide }}\n\n*{_text(caption)} Preset {result['preset']}.*"


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

The paper's tables come first, each with all its rows and columns, the paper's numbers in bold and ours below them. FSP-Laplace has
three rows of ours: the covariance form with its refined mean (this library's default), the same with the network's own mean, and the
paper's precision form. The number of training steps stands with each row: the preset `paper` takes the authors' number, `cpu` one that
two cores finish in minutes, and a bad row after few steps says little about its method.
"""

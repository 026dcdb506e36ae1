"""One static HTML page from result files: our numbers beside the paper's, every figure, settings, what is not comparable."""

import base64
import html
import json
from pathlib import Path
from typing import Any

from fsplaplace._version import __version__
from fsplaplace.experiments import names
from fsplaplace.experiments._records import ResultFormatError, read_record
from fsplaplace.experiments._runner import RESULT
from fsplaplace.host import write_atomically

_PRESETS = ("paper", "cpu", "quick")


def write_report(results: str | Path, page: str | Path) -> Path:
    """Write the page, self-contained, from all results in a directory.

    Args:
        results: the directory that `fsplaplace.experiments.reproduce` wrote to.
        page: the HTML file; written atomically.

    Of an experiment with several presets the most thorough is shown. A file that is not a whole result is named on the
    page and not read. Time and memory: those of the figures.
    """
    results, page = Path(results), Path(page)
    if not results.is_dir():
        raise FileNotFoundError(f"{results} is not a directory; run `fsplaplace reproduce NAME --out {results}` first")
    found: dict[str, dict[str, Any]] = {}
    refused = []
    for path in sorted(results.glob("*-*.json")):
        try:
            result = read_record(path, RESULT)
        except ResultFormatError as error:
            if "is not a fsplaplace" not in str(error):
                refused.append(str(error).replace(f"{path}", path.name))
            continue
        known = found.get(result["name"])
        if known is None or _PRESETS.index(result["preset"]) < _PRESETS.index(known["preset"]):
            found[result["name"]] = result
    if not found:
        raise ValueError(
            f"{results} holds no result of an experiment; run `fsplaplace reproduce NAME --out {results}` first"
        )
    ordered = sorted(found.values(), key=lambda result: (*names(), result["name"]).index(result["name"]))
    sections = "\n".join(_section(result, results) for result in ordered)
    contents = "".join(
        f'<li><a href="#{r["name"]}">{_text(r["title"])}</a><br>{_text(r["verdict"])}</li>' for r in ordered
    )
    warnings = "".join(f"<p class=warning>Not read: {_text(line)}</p>" for line in refused)
    body = _PAGE.format(style=_STYLE, contents=contents, warnings=warnings, sections=sections, version=__version__)
    write_atomically(page, body.encode())
    return page


def _section(result: dict[str, Any], directory: Path) -> str:
    figures = "".join(
        _figure(directory / name, f"{result['name']}-{result['preset']}", result["title"]) for name in result["figures"]
    )
    notes = "".join(f"<li>{_text(note)}</li>" for note in result["notes"])
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    return f"""<section id="{result["name"]}">
<h2>{_text(result["title"])}</h2>
<p class=place>{_text(result["place"])}</p>
<p class=verdict>{_text(result["verdict"])}</p>
{_tables(result)}
{figures}
<h3>Not comparable, and why</h3><ul>{notes}</ul>
<details><summary>Settings, run time and machine</summary>
<p>Preset {result["preset"]}, {result["seeds"]} seed(s), {result["seconds"]:.0f} s in all on {_text(result["machine"])}.</p>
<p>{_text(versions)}</p>
<pre>{_text(json.dumps(result["settings"], indent=1))}</pre></details>
<details><summary>How hyper-parameters were chosen</summary><pre>{_text(json.dumps(_first_seed(result), indent=1))}</pre></details>
</section>"""


def _tables(result: dict[str, Any]) -> str:
    """One table per task, a row per method and a column per score."""
    paper = {(p["task"], p["method"], p["score"]): p for p in result["published"]}
    tasks = list(dict.fromkeys(row["task"] for row in result["summary"]))
    shown = {
        name: described
        for name, described in result["scores"].items()
        if any(name in row["scores"] for row in result["summary"])
        and (not name.endswith("_standardised") or any(key[2] == name for key in paper))
    }
    parts = []
    for task in tasks:
        rows = [row for row in result["summary"] if row["task"] == task]
        best = {name: _best(rows, name, better) for name, (_, _, better) in shown.items()}
        head = "".join(f"<th>{_text(heading)}{_arrow(better)}</th>" for heading, _, better in shown.values())
        lines = []
        for row in rows:
            cells = [
                _cell(row, name, form, best[name], paper.get((task, result["counterparts"].get(row["method"]), name)))
                for name, (_, form, _) in shown.items()
            ]
            lines.append(f"<tr><th scope=row>{_text(row['method'])}</th>{''.join(cells)}</tr>")
        parts.append(
            f"<h3>{_text(task)}</h3><div class=scroll><table><thead><tr><th>method</th>{head}</tr></thead>"
            f"<tbody>{''.join(lines)}</tbody></table></div>"
        )
    key = "<p class=key>Mean ± standard error over seeds; below it the paper's number and the difference (ours − paper).</p>"
    return (key if paper else "") + "".join(parts)


def _cell(row: dict, name: str, form: str, best: float | None, printed: dict | None) -> str:
    found = row["scores"].get(name)
    if found is None:
        text = "<td>no value" if printed is not None else "<td>–"
    else:
        error = f" ± {form.format(found['error'])}" if found["seeds"] > 1 else ""
        text = f"<td{' class=best' if found['mean'] == best else ''}>{form.format(found['mean'])}{error}"
    if printed is None:
        return f"{text}</td>"
    error = "" if printed["error"] is None else f" ± {form.format(printed['error'])}"
    difference = "" if found is None else f"; {_signed(form, found['mean'] - printed['mean'])}"
    return f"{text}<small>paper {form.format(printed['mean'])}{error}{difference}</small></td>"


def _signed(form: str, value: float) -> str:
    return ("+" if value >= 0 else "−") + form.format(abs(value))


def _best(rows: list[dict], name: str, better: str) -> float | None:
    values = [row["scores"][name]["mean"] for row in rows if name in row["scores"]]
    if not better or len(values) < 2:
        return None
    return min(values) if better == "lower" else max(values)


def _arrow(better: str) -> str:
    return {"lower": " ↓", "higher": " ↑"}.get(better, "")


def _figure(path: Path, stem: str, title: str) -> str:
    if not path.is_file():
        return f"<p class=warning>The figure {_text(path.name)} is missing; run the experiment again.</p>"
    name = path.stem.removeprefix(f"{stem}-").replace("-", " ")
    image = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img src="data:image/png;base64,{image}" alt="{_text(title)}: {_text(name)}">'
        f"<figcaption>{_text(name)}</figcaption></figure>"
    )


def _first_seed(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result["choices"].items() if name.endswith("seed0")}


def _text(value: str) -> str:
    return html.escape(value, quote=True)


_STYLE = """
:root{color-scheme:light dark;--ink:#1c1e21;--paper:#fff;--soft:#5b6570;--line:#d5dae0;--mark:#e5f4ee;--warn:#8a3b00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--paper:#15181b;--soft:#9aa5b0;--line:#343b42;--mark:#173a2e;--warn:#ffb27a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
h1{line-height:1.2}h2{margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}
a{color:inherit}.place,.key,figcaption,small{color:var(--soft)}.verdict{font-weight:600}.warning{color:var(--warn)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;min-width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--line)}
tbody th{font-weight:400;min-width:11rem}td{font-variant-numeric:tabular-nums}td small{display:block;white-space:nowrap}
.best{background:var(--mark);font-weight:600}
figure{margin:1.5rem 0}img{max-width:100%;height:auto;background:#fff;border-radius:4px}
pre{overflow-x:auto;font-size:.8rem}details{margin:.5rem 0}summary{cursor:pointer}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>FSP-Laplace: our numbers beside the paper's</title><style>{style}</style></head>
<body><h1>FSP-Laplace: our numbers beside the paper's</h1>
<p>Every experiment has three rows for the method: the covariance form with its refined mean (this library's default form),
the same form with the network's own mean, and the paper's precision form. How each hyper-parameter was chosen stands with its experiment.</p>
{warnings}<ul>{contents}</ul>
{sections}
<footer><p class=key>Made by fsplaplace {version} from its result files alone.</p></footer></body></html>
"""

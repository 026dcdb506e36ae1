"""`fsplaplace reproduce`: run an experiment and print its table beside the paper's."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fsplaplace import experiments


def show_experiments() -> None:
    """Names, titles, and where they are in the paper."""
    table = Table("name", "what", "in the paper")
    for name in experiments.names():
        experiment = experiments.get(name)
        table.add_row(name, experiment.title, experiment.place)
    Console().print(table)


def run(
    name: str | None, preset: str, seeds: int | None, tasks: list[str] | None, out: Path, quiet: bool, finished: bool
) -> None:
    """Run what is missing, print the table, the files and the verdict."""
    if name is None:
        raise ValueError(f"reproduce needs the name of an experiment; pass one of {', '.join(experiments.names())}")
    console = Console()
    result = experiments.reproduce(
        experiments.get(name),
        preset=preset,
        seeds=seeds,
        tasks=tasks or None,
        out=out,
        finished=finished,
        quiet=quiet or not console.is_terminal,
        console=console,
    )
    if not quiet:
        console.print(results_table(result))
        print(f"wrote {out / f'{name}-{preset}.json'} and {len(result['figures'])} figures (PNG and PDF)")
    if result["missing"]:
        print(f"{len(result['missing'])} cells are missing, such as {result['missing'][0]}")
    print(result["verdict"])


def results_table(result: dict[str, Any]) -> Table:
    """Mean and standard error of the scores; the paper's in brackets."""
    shown = {name: found for name, found in result["scores"].items() if not name.endswith("_standardised")}
    table = Table("task", "method", *(heading for heading, _, _ in shown.values()), title=result["title"])
    medians = experiments.get(result["name"]).medians
    paper = {(p["task"], p["method"], p["score"]): p["mean"] for p in result["published"]}
    for row in result["summary"]:
        counterpart = result["counterparts"].get(row["method"])
        cells = []
        for name, (_, form, _) in shown.items():
            found = row["scores"].get(name)
            text = "-" if found is None else form.format(found["mean"])
            if found is not None and found["seeds"] > 1:
                text += f" ± {form.format(found['error'])}"
                text += f", median {form.format(found['median'])}" if name in medians else ""
            printed = paper.get((row["task"], counterpart, name))
            cells.append(text if printed is None else f"{text} [{form.format(printed)}]")
        table.add_row(row["task"], row["method"], *cells)
    return table

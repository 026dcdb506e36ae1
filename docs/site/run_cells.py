"""Run the cells of one example and keep what each printed and drew: `python run_cells.py EXAMPLE.py DIRECTORY`.

A cell's figures are those of the Matplotlib objects that it names or ends with. Outputs are Markdown, separated by form feeds.
"""

import ast
import contextlib
import io
import re
import sys
import warnings
from pathlib import Path
from typing import Any


def main(source: Path, directory: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__", "__file__": str(source)}
    outputs = []
    for number, text in enumerate(re.split(r"^# %%", source.read_text(encoding="utf-8"), flags=re.M)[1:]):
        head, _, body = text.partition("\n")
        if "[markdown]" in head:
            outputs.append("")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            value = _execute(body, source, space)
        lines = printed.getvalue() + "".join(
            f"{found.category.__name__}: {found.message}\n"
            for found in caught
            if issubclass(found.category, UserWarning)
        )
        parts = [f'```text title="Output"\n{lines.rstrip()}\n```'] if lines.strip() else []
        assigned = [space.get(name) for name in _assigned(body)]
        for place, figure in enumerate(_figures([value, *assigned])):
            name = f"{source.stem}-{number}{f'-{place}' if place else ''}.png"
            figure.savefig(directory / name, dpi=110, bbox_inches="tight")
            parts.append(f"![What this cell draws]({name})")
        outputs.append("\n\n".join(parts))
    (directory / "outputs.txt").write_text("\f".join(outputs), encoding="utf-8")


def _execute(body: str, source: Path, space: dict[str, Any]) -> Any:
    """Run the statements; the value of the last one if it is an expression."""
    tree = ast.parse(body)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(source), "exec"), space)
    return eval(compile(ast.Expression(last.value), str(source), "eval"), space) if last is not None else None


def _assigned(body: str) -> list[str]:
    """Names that the cell gives to something."""
    nodes = ast.walk(ast.parse(body))
    return list(
        dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )


def _figures(values: list[Any]) -> list[Any]:
    """The figures of these objects and of what sequences among them hold, each once."""
    matplotlib = sys.modules.get("matplotlib.artist")
    if matplotlib is None:
        return []
    found: dict[int, Any] = {}
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple) or (type(value).__name__ == "ndarray" and value.dtype == object):
            waiting.extend(reversed(list(value)))
        elif isinstance(value, matplotlib.Artist) and (figure := value.figure) is not None:
            found[id(figure)] = figure
    return list(found.values())


if __name__ == "__main__":
    given, kept = map(Path, sys.argv[1:])
    # The example is run without arguments of its own.
    sys.argv = [str(given)]
    main(given, kept)

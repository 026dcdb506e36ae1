"""Run the cells of one example and keep what each printed and drew: `python run_cells.py EXAMPLE.py DIRECTORY`.

An example draws by ending a cell with an object of Matplotlib. Outputs are Markdown, separated by form feeds.
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
        figure = getattr(value, "figure", None)
        if figure is not None:
            name = f"{source.stem}-{number}.png"
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


if __name__ == "__main__":
    given, kept = map(Path, sys.argv[1:])
    # The example is run without arguments of its own.
    sys.argv = [str(given)]
    main(given, kept)

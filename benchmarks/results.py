"""Results of benchmarks: JSON with everything needed to repeat them, and tables generated from that JSON alone."""

import json
import platform
import re
import resource
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("fsplaplace", "jax", "jaxlib", "equinox", "gpjax", "optax", "numpy", "scipy")


def write_results(
    directory: str | Path,
    name: str,
    rows: list[dict],
    settings: dict,
    *,
    seconds: float,
    tables: Callable[[list[dict]], str],
) -> None:
    """Write `name.json`, and `name.md` from what was written."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    record = {
        "name": name,
        "settings": settings,
        "versions": {package: version(package) for package in _PACKAGES},
        "python": platform.python_version(),
        "seconds": round(seconds, 1),
        "rows": rows,
    }
    path = directory / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    (directory / f"{name}.md").write_text(tables(json.loads(path.read_text())["rows"]) + "\n")
    print(f"wrote {path} and {path.with_suffix('.md')}")


def read_rows(directory: str | Path, name: str, settings: dict) -> list[dict]:
    """Rows of an earlier run with the same settings and library version; none if there is no such run."""
    path = Path(directory) / f"{name}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    same = record.get("settings") == settings and record.get("versions", {}).get("fsplaplace") == version("fsplaplace")
    return record["rows"] if same else []


def peak_memory() -> int:
    """The most bytes this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not what `getrusage` says: a new process begins with the peak of the one that started it.
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024  # pyright: ignore[reportOptionalSubscript] - every Linux has it
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def markdown_table(header: Sequence[str], body: Sequence[Sequence[Any]]) -> str:
    """A markdown table; floats with four decimals, missing values as a dash."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in body]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)

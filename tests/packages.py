"""Install the built wheel and source distribution in empty environments and use them: `python tests/packages.py dist [EXTRA ...]`.

Each extra is installed alone, the package is imported, and the extra's own example is run in a directory where the repository is
not, so that a dependency that nobody declared shows. Needs a package index; takes minutes. Run by the job "packages"; not
collected by pytest.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_FIT = """
from pathlib import Path
from typer.testing import CliRunner
from fsplaplace.cli import app
Path("t.csv").write_text("x;y\\n" + "".join(f"{k};{k * k}\\n" for k in range(20)))
done = CliRunner().invoke(app, "fit t.csv --target y --steps 5 --kernel rbf".split())
assert done.exit_code == 0, done.output
assert Path("fit/fit.png").exists()
"""
_DATA = "import fsplaplace.datasets as datasets, pandas, pooch; assert 'boston' in datasets.names()"
_DOCS = "import zensical, latex2mathml, yaml, fsplaplace"
# Extra -> an example of the repository, or a program, that needs it.
USES: dict[str, str | Path] = {
    "": _EXAMPLES / "post_hoc.py",
    "plots": _EXAMPLES / "quickstart.py",
    "cli": _FIT,
    "data": _DATA,
    "flax": _EXAMPLES / "own_network_flax.py",
    "haiku": _EXAMPLES / "own_network_haiku.py",
    "export": _EXAMPLES / "http_service.py",
    "neighbours": _EXAMPLES / "conformal_and_forecasting.py",
    "bo": _EXAMPLES / "bo_constrained.py",
    "ax": _EXAMPLES / "bo_ax.py",
    "docs": _DOCS,
}
# Any other request for torch would bring its CUDA build.
_FIRST = {extra: ["torch==2.13.0"] for extra in ("bo", "ax")}


def main(directory: Path, extras: list[str]) -> None:
    """The source distribution with no extra, then the wheel with each."""
    wheel, source = next(directory.glob("*.whl")).resolve(), next(directory.glob("*.tar.gz")).resolve()
    if not extras:
        _use(source, "")
    for extra in extras or USES:
        _use(wheel, extra)


def _use(package: Path, extra: str) -> None:
    with tempfile.TemporaryDirectory() as where:
        venv.create(where, with_pip=True)
        python = Path(where) / "bin/python"
        for name in (*_FIRST.get(extra, ()), f"{package}[{extra}]" if extra else str(package)):
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name], check=True)
        subprocess.run([python, "-c", "import fsplaplace"], check=True, cwd=where)
        use = USES[extra]
        subprocess.run([python, *([str(use)] if isinstance(use, Path) else ["-c", use])], check=True, cwd=where)
        print(f"{package.name} with {extra or 'no extra'}: works", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""Install the built wheel and source distribution in empty environments and use them: `python tests/packages.py dist`.

Each extra is installed alone and one thing that needs it is run, so that a dependency that nobody declared shows. Needs a package
index; takes minutes. Run by the job "packages"; not collected by pytest.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# Extra -> a program that needs it.
_USES = {
    "": "import numpy as np, fsplaplace as fsp; X = np.linspace(0, 1, 20)[:, None]; "
    "fsp.FSPRegressor(network=(10,), steps=5, num_context=20).fit(X, X[:, 0]).predict(X, return_std=True)",
    "plots": "import jax.random as jr, fsplaplace as fsp; from gpjax.kernels import RBF; "
    "import numpy as np; fsp.plot_prior(fsp.Prior(RBF()), np.linspace(0, 1, 9)[:, None], np.zeros(9), key=jr.key(0))",
    "cli": "from typer.testing import CliRunner; from fsplaplace.cli import app; assert CliRunner().invoke(app, ['--version']).exit_code == 0",
    "data": "import fsplaplace.datasets as d; d.names()",
    "flax": "import flax, fsplaplace.networks.adapters",
    "haiku": "import haiku, fsplaplace.networks.adapters",
    "export": "import flatbuffers; from fsplaplace import export",
}


def main(directory: Path) -> None:
    """Every package with no extra, then the wheel with each."""
    wheel, source = next(directory.glob("*.whl")).resolve(), next(directory.glob("*.tar.gz")).resolve()
    _use(source, "")
    for extra in _USES:
        _use(wheel, extra)


def _use(package: Path, extra: str) -> None:
    with tempfile.TemporaryDirectory() as where:
        venv.create(where, with_pip=True)
        python = Path(where) / "bin/python"
        name = f"{package}[{extra}]" if extra else str(package)
        subprocess.run([python, "-m", "pip", "install", "--quiet", name], check=True)
        subprocess.run([python, "-c", _USES[extra]], check=True, cwd=where)
        print(f"{package.name} with {extra or 'no extra'}: works", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

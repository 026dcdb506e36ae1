"""The command line: `fsplaplace demo`, `reproduce`, `data`, `report`, `fit`, `studio` and `predict`."""

import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

try:
    import typer
except ImportError as error:  # pragma: no cover - only where the extra is missing
    raise ImportError('the command line needs typer; install it with `pip install "fsplaplace[cli]"`') from error
from rich.console import Console

from fsplaplace._version import __version__
from fsplaplace.cli._errors import flush_output, heard_interrupts, user_errors

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks with Gaussian-process priors over functions (FSP-Laplace).",
)
data_app = typer.Typer(
    no_args_is_help=True, help="The data sets of the experiments: where they are and whether they are whole."
)
app.add_typer(data_app, name="data")


class Test(StrEnum):
    """Which rows are held out."""

    random = "random"
    last = "last"


def path(text: str | Path) -> Path:
    """A path that was named: an empty one, as of a variable that is not set, would be the current directory."""
    if not str(text).strip():
        raise typer.BadParameter("the name is empty; pass a path")
    return Path(text)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress.")]


def main() -> None:
    """The command line as a program: `fsplaplace_command.main` imports and calls it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # In a locale without these letters they are printed as question marks, instead of an error.
            stream.reconfigure(errors="replace")
    with heard_interrupts():
        try:
            app()
        finally:
            flush_output()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            envvar="FSPLAPLACE_CACHE",
            help="Keep compiled programs in this directory, by default in the user's cache directory: later commands start faster.",
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache", envvar="FSPLAPLACE_NO_CACHE", help="Keep no compiled programs, unless --cache says where."
        ),
    ] = False,
) -> None:
    if version:
        print(f"fsplaplace {__version__}")
        raise typer.Exit
    if cache is not None or not no_cache:
        with user_errors():
            _keep_programs(cache)


def _keep_programs(cache: Path | None) -> None:
    """In this directory, or in the user's: if that one cannot be written to, nothing is kept."""
    from fsplaplace.host import cache_programs

    try:
        cache_programs(cache)
    except ValueError:
        if cache is not None:
            raise


@app.command()
def demo(
    out: Annotated[Path, typer.Option(parser=path, help="Directory for the figure and the numbers.")] = Path("results"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each prior.")] = 5000,
    quiet: Quiet = False,
) -> None:
    """The paper's sine task under four priors, against the exact Gaussian process."""
    with user_errors(writes=out):
        from fsplaplace.experiments import demo as example

        example.run(out, steps=steps, progress=not quiet)
        print(f"wrote {out / 'demo.png'} and {out / 'demo.json'}")


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment; --list shows them.", show_default=False)] = None,
    preset: Annotated[
        str, typer.Option(help="quick (a minute), cpu (minutes on two cores) or paper (the authors').")
    ] = "cpu",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; the preset's by default.")] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="A task of the experiment, such as a table of uci; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(parser=path, help="Directory for results, figures and finished cells.")] = Path(
        "results"
    ),
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing: table and figures of the cells that are finished.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments: JSON, figures, a table and a verdict. An interrupted run continues."""
    with user_errors(writes=out, kept="run the same command to continue"):
        from fsplaplace.cli import _reproduce

        _reproduce.show_experiments() if show_list else _reproduce.run(name, preset, seeds, task, out, quiet, finished)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(parser=path, help="Directory with the results of `reproduce`.")] = Path(
        "results"
    ),
    out: Annotated[
        Path | None, typer.Option(parser=path, help="Directory of the pages; `report` in that one by default.")
    ] = None,
) -> None:
    """Markdown pages from the results: the paper's tables with our numbers beside them, figures, settings."""
    with user_errors(writes=out or results / "report"):
        from fsplaplace.experiments.report import write_report

        index, *pages = write_report(results, out or results / "report")
        print(f"wrote {index} and {len(pages)} page{'s' if len(pages) > 1 else ''}")


@app.command()
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            parser=path,
            help="A table with a header: commas, semicolons, tabs or blanks between cells.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    features: Annotated[
        list[str] | None, typer.Option(help="Columns to predict it from, as a,b or repeated; all others by default.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out.")] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="Columns of codes that are names, not numbers.")] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows that lack a value in a column that is used.")
    ] = False,
    kernel: Annotated[
        str | None,
        typer.Option(
            help='Sums and products of rbf, matern12, matern32, matern52, rational_quadratic, periodic and linear, as "linear + '
            'periodic(1 year) * rbf(30, age)": numbers are kept, what is not stated is fitted. The default of FSPRegressor.',
            show_default=False,
        ),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            help='What repeats, as "1 year" or 12: of the kernel\'s periodic part, which is added if it has none.'
        ),
    ] = None,
    out: Annotated[Path, typer.Option(parser=path, help="Directory for predictions, figure and model.")] = Path("fit"),
    test: Annotated[
        Test,
        typer.Option(help="Hold out random rows, or the last ones (by date, or by the only input) for a forecast."),
    ] = Test.random,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the rows held out for the scores.")
    ] = 0.2,
    effort: Annotated[
        str | None, typer.Option(help="fast, normal or thorough; the default of FSPRegressor.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps; the default of FSPRegressor.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For the split and the fit.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Fit a table: scores on held-out rows, predictions with uncertainty, a figure and a saved model."""
    with user_errors(writes=out, kept="a model whose two files are of different fits is refused by predict"):
        from fsplaplace.cli import _tables

        wanted = _tables.Wanted(
            target, features or (), drop or (), categorical or (), drop_missing, kernel, period, test.value, test_fraction, effort,
            steps, seed, quiet,
        )  # fmt: skip
        _tables.fit_table(table, out, wanted)


@app.command()
def studio(
    table: Annotated[
        Path | None, typer.Argument(parser=path, help="A CSV file with a header; without, the prior alone.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="The column to predict; twice for a vector field. The last by default.")
    ] = None,
    out: Annotated[Path, typer.Option(parser=path, help="The page: one HTML file that works offline.")] = Path(
        "studio.html"
    ),
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """A page to choose a prior by looking: functions it draws, the exact posterior, evidence, the Python lines."""
    with user_errors(writes=out):
        from fsplaplace.studio import write_studio

        print(f"wrote {write_studio(out, table, target=target, show=show)}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(parser=path, help="The directory that `fit` wrote.", show_default=False)],
    table: Annotated[
        Path, typer.Argument(parser=path, help="A CSV file with the same feature columns.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(parser=path, help="File for the predictions.")] = Path("predictions.csv"),
) -> None:
    """Predict the rows of a table with a model that `fit` saved: mean and standard deviations."""
    with user_errors(writes=out):
        from fsplaplace.cli import _tables

        _tables.predict_table(model, table, out)


@data_app.command("list")
def data_list() -> None:
    """All data sets and what they hold."""
    with user_errors():
        from fsplaplace.cli import _data

        _data.show(Console())


@data_app.command("fetch")
def data_fetch(names: Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")] = None) -> None:
    """Find the files in the mirror (FSPLAPLACE_DATA), or download them once, and check them."""
    with user_errors():
        from fsplaplace.cli import _data

        _data.fetch(names)


@data_app.command("verify")
def data_verify(names: Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")] = None) -> None:
    """Hash the local files anew and compare with the known hashes; downloads nothing."""
    with user_errors():
        from fsplaplace.cli import _data

        _data.verify(names)

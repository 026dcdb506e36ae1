"""How fast the studio follows a slider, in a real browser: 200 rows, 200 points, 35 moves.

    python benchmarks/studio_speed.py     # needs Chromium on the PATH and a quiet machine

Writes `benchmarks/results/studio_speed.json` and, from it, `studio_speed.md`.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import markdown_table, write_results

from fsplaplace.studio import write_studio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from studio.browser import Browser

ROWS, MOVES, REPEATS = 200, 5, 7
MOVE = f"""(async () => {{ const slider = document.getElementById("terms-0-0-lengthscale");
    for (let k = 0; k < {MOVES}; k++) {{ slider.value = Number(slider.value) + 1; slider.dispatchEvent(new Event("input"));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))); }} }})()"""


def script_seconds(browser: Browser) -> float:
    """Processor time of the page's scripts since it was opened."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "ScriptDuration")


def measure(directory: Path) -> dict:
    """Median time of one move, on the clock and of the processor."""
    table = directory / "table.csv"
    x = np.linspace(0, 10, ROWS)
    table.write_text("hours,level\n" + "".join(f"{at:.4f},{3 + 2 * np.sin(at):.4f}\n" for at in x))
    address = write_studio(directory / "studio.html", table, target="level").resolve().as_uri()
    browser = Browser(directory / "profile")
    try:
        browser.size(1200, 900)
        browser.open(address)
        browser.settle()
        browser.run(MOVE)
        browser.run("studio.times.length = 0")
        browser.call("Performance.enable", timeDomain="threadTicks")
        busy = []
        for _ in range(REPEATS):
            before = script_seconds(browser)
            browser.run(MOVE)
            busy.append(1000 * (script_seconds(browser) - before) / MOVES)
        return {
            "clock_ms": statistics.median(browser.run("studio.times")),
            "processor_ms": statistics.median(busy),
        }
    finally:
        browser.close()


def tables(rows: list[dict]) -> str:
    body = [[ROWS, round(row["clock_ms"], 1), round(row["processor_ms"], 1)] for row in rows]
    return (
        "# One move of a slider in the studio\n\nMedian milliseconds until everything is drawn again; wanted: 50.\n\n"
        + (markdown_table(["rows and points", "clock, ms", "processor, ms"], body))
    )


if __name__ == "__main__":
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    results = Path(__file__).parent / "results"
    write_results(
        results,
        "studio_speed",
        [found],
        {"rows": ROWS, "moves": MOVES * REPEATS},
        seconds=time.perf_counter() - start,
        tables=tables,
    )
    print(tables([found]))

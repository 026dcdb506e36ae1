"""The same weights and the same posterior on 1, 2, 4 and 8 devices and in 2 and 4 processes, and what happens when one process is killed.

    python benchmarks/devices.py

Virtual CPU devices of one machine: this shows that results agree and that nothing hangs, not how fast a cluster is.
Writes `benchmarks/results/devices.json` and `devices.md`. Fails if trained weights, weights of a run that was stopped on
one device and continued here, or the posterior differ by more than 1e-5.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import markdown_table, write_results

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from parallel.fit import launch

LAYOUTS = [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 4)]
TOLERANCE = 1e-5


def measure(folder: Path, devices: int, processes: int) -> tuple[dict, dict]:
    path = folder / f"{devices}_{processes}.npz"
    begin = time.perf_counter()
    for process in launch(path, devices=devices, processes=processes):
        _, errors = process.communicate(timeout=600)
        if process.returncode:
            raise SystemExit(f"{processes} processes of {devices} devices: exit {process.returncode}\n{errors}")
    seconds = time.perf_counter() - begin
    return {"kind": "layout", "devices": devices, "processes": processes, "seconds": seconds}, dict(np.load(path))


def kill_one(folder: Path) -> dict:
    """Kill the second of two processes once both are at work; the first must end by itself and write nothing."""
    path = folder / "killed.npz"
    first, second = launch(path, devices=1, processes=2)
    time.sleep(8)
    second.send_signal(signal.SIGKILL)
    killed = time.perf_counter()
    _, errors = first.communicate(timeout=300)
    second.communicate()
    lines = [line for line in errors.splitlines() if "heartbeat" in line or "peer" in line.lower() or "task" in line]
    return {"kind": "killed", "exit": first.returncode, "seconds": time.perf_counter() - killed,
            "result_file": path.exists(), "message": lines[0][:300] if lines else errors[-300:]}  # fmt: skip


def tables(rows: list[dict]) -> str:
    body = [
        [r["processes"], r["devices"], f"{r['seconds']:.1f}", f"{r['difference']:.1e}"] for r in rows if r["kind"] == "layout"
    ]  # fmt: skip
    parts = ["# The same weights and posterior on several devices and processes (virtual CPU devices)\n"]
    parts.append(markdown_table(["processes", "devices of each", "seconds with start-up", "largest difference"], body))
    for row in (r for r in rows if r["kind"] == "killed"):
        parts.append(
            f"\nOne of two processes killed: the other ended after {row['seconds']:.0f} s with exit status {row['exit']}, "
            f"result file written: {'yes' if row['result_file'] else 'no'}. Its message:\n\n    {row['message']}"
        )
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    arguments = parser.parse_args()
    begin, rows, reference = time.perf_counter(), [], None
    with tempfile.TemporaryDirectory() as name:
        for layout in LAYOUTS:
            row, found = measure(Path(name), *layout)
            reference = found if reference is None else reference
            row["difference"] = max(float(np.max(np.abs(found[k] - reference[k]) / np.maximum(1, np.abs(reference[k]))))
                                    for k in ("mean", "variance", "evidence", "weights", "resumed"))  # fmt: skip
            rows.append(row)
            print(row, flush=True)
        rows.append(kill_one(Path(name)))
        print(rows[-1], flush=True)
    write_results(arguments.out, "devices", rows, {"tolerance": TOLERANCE}, seconds=time.perf_counter() - begin, tables=tables)  # fmt: skip
    worst = max(row["difference"] for row in rows if row["kind"] == "layout")
    if worst > TOLERANCE or rows[-1]["result_file"] or not rows[-1]["exit"]:
        raise SystemExit(f"devices disagree by {worst:.1e}, or a killed process went unnoticed")


if __name__ == "__main__":
    main()

"""Write the tables of README.md from the committed JSON: `python benchmarks/readme.py`."""

import json
import re
from pathlib import Path
from statistics import mean

from results import markdown_table

ROOT = Path(__file__).resolve().parent.parent


def demo_table() -> str:
    rows = json.loads((ROOT / "docs/figures/demo.json").read_text())["rows"]
    header = [
        "prior",
        "rank",
        "network mean",
        "posterior mean",
        "posterior std",
        "log evidence",
        "log evidence, exact GP",
    ]
    body = [[f"{row[name]:.2f}" if "evidence" in name else row[name] for name in header] for row in rows]
    return markdown_table(header, body)


def core_table() -> str:
    rows = json.loads((ROOT / "benchmarks/results/core.json").read_text())["rows"]
    times = {row["method"]: row["seconds"] for row in rows if row["kind"] == "time"}
    stages = ("posterior, cold", "posterior, warm", "predict 10,000, warm")
    body = [[stage, *(f"{seconds[stage]:.2f}" for seconds in times.values())] for stage in stages]
    return markdown_table(["seconds", *times], body)


def priors_table() -> str:
    rows = json.loads((ROOT / "benchmarks/results/priors.json").read_text())["rows"]
    networks = ("2 x 50, float32", "1 x 400, float64")
    body = []
    for name in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == name]
        gp = mean(row["gp"] for row in mine)
        gaps = [mean(row[network]["score"] for row in mine) - gp for network in networks]
        body.append([name, mine[0]["rows"], f"{gp:.3f}", *(f"{gap:+.3f}" for gap in gaps)])
    return markdown_table(["data", "rows", "exact GP", *(f"{network}: minus GP" for network in networks)], body)


def estimators_table() -> str:
    """The first table of the benchmark's own page, which marks what is best or within a standard error of it."""
    page = (ROOT / "benchmarks/results/estimators.md").read_text()
    return page.split("## Log predictive density")[1].split("\n\n")[1].strip()


TABLES = {"demo": demo_table, "core": core_table, "priors": priors_table, "estimators": estimators_table}


def main():
    path = ROOT / "README.md"
    text = path.read_text()
    for name, table in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        text, found = re.subn(
            pattern, lambda match, table=table: f"{match[1]}\n{table()}\n\n{match[2]}", text, flags=re.S
        )
        if found != 1:
            raise SystemExit(f"README.md has {found} places for the table {name!r}; it needs one")
    path.write_text(text)


if __name__ == "__main__":
    main()

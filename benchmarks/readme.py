"""Write the tables of README.md from the committed JSON: `python benchmarks/readme.py`."""

import json
import re
from pathlib import Path

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


TABLES = {"demo": demo_table}


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

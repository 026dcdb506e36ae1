"""Write the tables of README.md and of the documentation from the committed JSON: `python benchmarks/readme.py [--check]`."""

import json
import re
import sys
from pathlib import Path
from statistics import mean

from results import markdown_table

from fsplaplace.experiments import get

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


def gp_speed_table() -> str:
    """Exact processes beside ours on the sine task; a second call each, since the first compiles."""
    rows = json.loads((ROOT / "benchmarks/results/peers.json").read_text())["rows"]
    shown = {
        "fsplaplace": "fsplaplace, posterior of a trained network",
        "GPJax exact": "GPJax exact",
        "GPyTorch exact": "GPyTorch exact",
    }
    times = {row["method"]: row for row in rows}
    body = [
        [title, *(f"{times[name][stage]:.3f}" for stage in ("fit, warm", "predict, warm"))]
        for name, title in shown.items()
    ]
    return markdown_table(["seconds, 100 rows", "posterior", "10,000 predictions"], body)


def methods_table() -> str:
    rows = json.loads((ROOT / "benchmarks/results/baselines.json").read_text())
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    body = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = {row["task"]: row for row in rows if row["method"] == name}
        cells = [
            f"{mine[task]['log_predictive_density']:.2f} ({mine[task]['fit_cpu_seconds']:.0f} s)"
            if task in mine
            else "-"
            for task in tasks
        ]
        body.append([f"`{name}`", *cells])
    return markdown_table(["method", *tasks], body)


def paper_table() -> str:
    """The method's rows of the paper's Table 1, ours below them: mean squared errors."""
    body = []
    for name, title, unit in (("mauna-loa", "Mauna Loa CO2, ppm²", "{:.2f}"), ("ocean", "ocean currents", "{:.4f}")):
        found = [ROOT / f"docs/results/{name}-{preset}.json" for preset in ("paper", "cpu")]
        record = json.loads(next(path for path in found if path.exists()).read_text())["content"]
        mine = {
            (row["task"], row["method"]): row["scores"]["mse"]["mean"]
            for row in record["summary"]
            if "mse" in row["scores"]
        }
        printed = {(p["method"]): p["mean"] for p in record["published"] if p["score"] == "mse"}
        for task in dict.fromkeys(task for task, _ in mine):
            ours = [
                mine.get((task, f"FSP-Laplace, {form}"))
                for form in ("covariance form, refined mean", "precision form (the paper's)")
            ]
            cells = [*ours, mine.get((task, "GP"))]
            label = f"{title}, {task}" if name == "mauna-loa" else title
            body.append(
                [
                    label,
                    unit.format(printed["FSP-Laplace"]),
                    unit.format(printed["GP"]),
                    *("-" if c is None else unit.format(c) for c in cells),
                ]
            )
    return markdown_table(
        ["mean squared error", "FSP-Laplace, paper", "GP, paper", "ours", "ours, the paper's form", "GP, ours"], body
    )


def width_table() -> str:
    """What width does: divergence from the exact process, by task and width of both hidden layers."""
    rows = json.loads((ROOT / "benchmarks/results/width.json").read_text())["rows"]
    found = {(row["task"], row["width"]): row["trained, smaller steps"] for row in rows if row["part"] == "grid"}
    widths = sorted({width for _, width in found})
    body = [
        [task, *(f"{found[task, width]:.4f}" if (task, width) in found else "-" for width in widths)]
        for task in dict.fromkeys(task for task, _ in found)
    ]
    return markdown_table(["nats from the exact process", *(f"2 x {width}" for width in widths)], body)


def growth_table() -> str:
    """Seconds and bytes of a posterior against the number of rows."""
    rows = json.loads((ROOT / "benchmarks/results/scale.json").read_text())["rows"]
    grown = [row for row in rows if row["kind"] == "growth" and row["axis"] == "n"]
    body = [[f"{row['size']:,}", row["rank"], f"{row['seconds']:.1f}", f"{row['bytes'] / 2**20:.0f}"] for row in grown]
    return markdown_table(["rows", "rank", "seconds", "MiB"], body)


def image_priors_table() -> str:
    """Evidence of priors over images; empty before the benchmark has run."""
    path = ROOT / "benchmarks/results/image_priors.json"
    if not path.exists():
        return "Not run yet."
    record = json.loads(path.read_text())
    header = ["data", "prior", "evidence, nats an image", "accuracy", "AUROC, variance", "variance in 50 directions"]
    body = [
        [
            name, row["prior"], f"{row['evidence_per_image']:.2f}", f"{row['accuracy']:.3f}", f"{row['auroc_variance']:.3f}",
            f"{100 * row['leading_50']:.0f} %",
        ]
        for name, rows in record["rows"].items()
        for row in rows
    ]  # fmt: skip
    words = (
        f"Exact Gaussian processes on Dirichlet labels of {record['images']:,} training images, parameters fitted to "
        f"{record['fit']:,}; accuracy and AUROC on {record['test']:,} test images and as many of the other data set."
    )
    return f"{words}\n\n{markdown_table(header, body)}"


def images_table() -> str:
    """Our rows of the paper's image table, and the paper's."""
    columns = {
        "expected_log_likelihood": ("expected log-likelihood", "{:.4f}"),
        "log_predictive_density": ("log predictive density", "{:.4f}"),
        "accuracy": ("accuracy", "{:.4f}"),
        "ece": ("ECE", "{:.4f}"),
        "ood_accuracy": ("OOD accuracy", "{:.3f}"),
        "auroc_entropy": ("AUROC", "{:.4f}"),
        "std_test": ("std, test", "{:.3f}"),
        "std_other": ("std, foreign", "{:.3f}"),
    }
    body = []
    for name in ("mnist", "fashion-mnist"):
        path = ROOT / f"docs/results/{name}-cpu.json"
        if not path.exists():
            continue
        record = json.loads(path.read_text())["content"]
        rows = [(row["method"], {s: f["mean"] for s, f in row["scores"].items()}) for row in record["summary"]]
        printed: dict[str, dict[str, float]] = {}
        for number in record["published"]:
            printed.setdefault(f"the paper's {number['method']}", {})[number["score"]] = number["mean"]
        density, accuracy = get(name).ensemble_of_ten
        beyond = {"published ensemble of ten LeNets": {"log_predictive_density": density, "accuracy": accuracy}}
        for method, scores in (*rows, *printed.items(), *beyond.items()):
            cells = [form.format(scores[each]) if each in scores else "-" for each, (_, form) in columns.items()]
            body.append([name, method, *cells])
    if not body:
        return "Not run yet."
    return markdown_table(["data", "method", *(heading for heading, _ in columns.values())], body)


def image_stages_table() -> str:
    """Seconds and memory of each stage of the posteriors of the image experiments, beside their plans."""
    body = []
    for name in ("mnist", "fashion-mnist"):
        path = ROOT / f"docs/results/{name}-cpu.json"
        choices = json.loads(path.read_text())["content"]["choices"] if path.exists() else {}
        for cell, chosen in choices.items():
            for variant in ("last layer", "all weights"):
                if "planned" not in chosen.get(variant, {}):
                    continue
                found, label = (
                    chosen[variant],
                    f"{name}, {cell.split('--')[1].replace('__', ', ').replace('_', '-')}, {variant}",
                )
                for stage, seen in found["stages"].items():
                    planned = found["planned"].get(stage, {})
                    flops = f"{planned['flops'] / 1e9:,.0f}" if planned else "-"
                    body.append(
                        [label, stage, f"{seen['seconds']:.1f}", f"{planned.get('bytes', 0) / 2**20:,.0f}", flops]
                    )
                peak = f"{found['peak_memory_of_process'] / 2**20:,.0f}"
                body.append([label, "whole process, with the images", "-", f"{peak} (measured)", "-"])
    if not body:
        return "Not run yet."
    return markdown_table(["posterior", "stage", "seconds, measured", "MiB, planned", "GFLOP, planned"], body)


def image_training_table() -> str:
    """What limits the networks: trainings judged on validation images."""
    return (ROOT / "benchmarks/results/image_training.md").read_text().strip()


TABLES = {
    "image-priors": image_priors_table,
    "image-training": image_training_table,
    "images": images_table,
    "image-stages": image_stages_table,
    "demo": demo_table,
    "core": core_table,
    "priors": priors_table,
    "estimators": estimators_table,
    "gp-speed": gp_speed_table,
    "methods": methods_table,
    "paper": paper_table,
    "width": width_table,
    "growth": growth_table,
}


def filled(text: str) -> str:
    """The page with every `<!-- table: NAME -->` ... `<!-- end -->` filled in."""
    pattern = r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text, flags=re.S)


def main():
    changed = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        if (new := filled(text)) != text:
            changed.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(new)
    print(*(f"{'differs' if '--check' in sys.argv else 'wrote'}: {path}" for path in changed), sep="\n")
    if changed and "--check" in sys.argv:
        raise SystemExit("run `python benchmarks/readme.py`")


if __name__ == "__main__":
    main()

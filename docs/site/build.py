"""The documentation site: `make docs`, or `python docs/site/build.py [--without-examples]`.

Pages come from `docs/*.md`, from running `examples/*.py`, from the public names of the package, from the committed result files
and from CHANGELOG.md. They are gathered in `build/docs`, rendered by Zensical with mkdocstrings into `build/site`, mathematics
becomes MathML, and then every link, anchor and image of the rendered pages is followed: one that leads nowhere fails the build.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import examples
import links
import mathematics
import pictures
import reference
import results
import yaml

# The studio is a page of its own, put beside the rendered ones.
STUDIO = importlib.util.find_spec("fsplaplace.studio") is not None
ROOT = Path(__file__).resolve().parents[2]
SOURCE, PAGES, SITE = ROOT / "docs", ROOT / "build/docs", ROOT / "build/site"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--without-examples",
        action="store_true",
        help="show the examples' code without running them: seconds, not minutes",
    )
    options = parser.parse_args()
    gather(run_examples=not options.without_examples)
    shutil.rmtree(SITE, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", "build/mkdocs.yml"],
        cwd=ROOT,
        check=True,
    )
    if STUDIO:
        from fsplaplace.studio import write_studio

        write_studio(SITE / "studio-page.html")
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(mathematics.to_mathml(text), encoding="utf-8")
    broken = links.broken(SITE)
    if broken:
        raise SystemExit("\n".join(["These links of the site lead nowhere:", *broken]))
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}; every link was followed")


def gather(*, run_examples: bool) -> None:
    """Write all pages and `build/mkdocs.yml`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(SOURCE, PAGES, ignore=shutil.ignore_patterns("*.json", "*.py", "mkdocs.yml", "results", "site"))
    config = yaml.safe_load((SOURCE / "mkdocs.yml").read_text(encoding="utf-8"))
    generated = {
        "examples": examples.write_pages(ROOT / "examples", PAGES / "examples", run=run_examples),
        "results": results.write_pages(ROOT, PAGES / "results"),
        "api": reference.write_pages(PAGES / "api"),
    }
    pictures.write_pictures(PAGES / "figures")
    shutil.copy(ROOT / "CHANGELOG.md", PAGES / "changelog.md")
    shutil.copy(ROOT / "CONTRIBUTING.md", PAGES / "contributing.md")
    if not STUDIO:
        (PAGES / "studio.md").unlink()
        config["nav"] = [section for section in config["nav"] if "studio.md" not in section.values()]
    for section in config["nav"]:
        ((title, entry),) = section.items()
        if isinstance(entry, str) and entry in generated:
            section[title] = [f"{entry}/{name}" for name in generated[entry]]
    (ROOT / "build/mkdocs.yml").write_text(
        yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )


if __name__ == "__main__":
    main()

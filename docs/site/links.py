"""Follow every link of a rendered site: pages, images, scripts, and anchors inside pages."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


def broken(site: Path) -> list[str]:
    """Links that lead nowhere, as `page: link`; addresses of other hosts are not fetched."""
    pages = {path.resolve(): _read(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            if not _leads_somewhere(link, path, site.resolve(), pages):
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return sorted(set(found))


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                self.links.append(value)


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads_somewhere(link: str, path: Path, site: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme in ("http", "https", "mailto", "data", "javascript")
    if path.name == "404.html":
        return True  # Its links are from the root of wherever the site is put.
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return False
    return target not in pages or unquote(parts.fragment) in pages[target].anchors

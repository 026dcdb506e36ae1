"""One HTML file from the page's parts: style, modules and data inlined, and a policy that lets nothing else run."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fsplaplace._version import __version__
from fsplaplace.arguments import checked

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.mjs";\n', re.MULTILINE)
# What the page reads of the data that it opens with.
_GIVEN = ("file", "text", "rows", "targets")
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


@checked
def studio_page(given: Mapping[str, Any] | None = None) -> str:
    """The studio as the text of one HTML file that needs no network, no server and no other file.

    The page's content security policy names the hashes of its one script and its one style: the browser runs nothing else, whatever
    a table or an address holds, and opens no connection.

    Args:
        given: the data that the page opens with: `file`, `text` (CSV), `rows` (of the whole table) and `targets`; None for none.

    Example:
        >>> page = studio_page()
        >>> "<script src" in page or "http://" in page or "https://" in page
        False
    """
    if given is not None and (lacking := [name for name in _GIVEN if name not in given]):
        raise ValueError(
            f"studio_page: given lacks {', '.join(map(repr, lacking))}; pass all of {', '.join(_GIVEN)}, or None"
        )
    style, script = _part("style.css"), linked("main")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    inlined = {
        "policy": policy,
        "style": style,
        "version": __version__,
        # A "<" in the data could end the element that holds them.
        "given": json.dumps(None if given is None else dict(given)).replace("<", "\\u003c"),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: inlined[place[1]], _part("studio.html"))


@checked
def linked(name: str) -> str:
    """A module and all that it imports as one script; each module keeps its names to itself inside a function.

    Args:
        name: the module's file in `page/`, without `.mjs`.
    """
    texts: dict[str, str] = {}
    _gather(name, texts, ())
    return "\n".join(f"// {module}.mjs\n{text}" for module, text in texts.items())


def _gather(name: str, texts: dict[str, str], above: tuple[str, ...]) -> None:
    """Adds a module after the modules that it imports."""
    if name in above:
        raise ValueError(f"studio: the modules {' -> '.join([*above, name])} import each other")
    if name in texts:
        return
    source = _part(f"{name}.mjs")
    for match in _IMPORT.finditer(source):
        _gather(match[2], texts, (*above, name))
    exported = _EXPORT.findall(source)
    body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {_variable(match[2])};\n", source)
    body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
    if re.search(r"^(import|export)\b", body, re.MULTILINE):
        raise ValueError(
            f"studio: {name}.mjs has an import or export of a form that cannot be linked; write `import {{a}} from`"
        )
    texts[name] = f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


def _variable(module: str) -> str:
    return f"module_{module.replace('-', '_')}"


def _part(name: str) -> str:
    return (files("fsplaplace.studio") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""Formulas as MathML, which browsers draw by themselves: the pages need no script and no network for their mathematics."""

import html
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*(\\\(|\\\[)(.*?)(?:\\\)|\\\])\s*</\1>', re.S)


def to_mathml(page: str) -> str:
    r"""The page with every `\(...\)` and `\[...\]` that the Markdown extension has marked turned into `<math>`."""
    return _FORMULA.sub(_one, page)


def _one(found: re.Match) -> str:
    element, opening, formula = found.groups()
    display = "block" if opening == r"\[" else "inline"
    return f'<{element} class="formula">{convert(html.unescape(formula).strip(), display=display)}</{element}>'

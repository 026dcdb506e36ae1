"""Kernels in words: "linear + periodic(1) * rbf(5, season)", read into sums, products and single kernels.

    sum     = product ("+" product)*
    product = factor ("*" factor)*
    factor  = "(" sum ")" | name [ "(" part ("," part)* ")" ]
    part    = [parameter "="] number [unit] | column

A number without a name is the kernel's first parameter: the period of `periodic`, the length scale of others. A column is one or
more words, or anything in quotes. Nothing of the text is ever executed.
"""

import math
import re
from typing import NamedTuple

# The parameters of each kernel; a number without a name is the first of them.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "rbf": ("lengthscale", "variance"),
    "matern12": ("lengthscale", "variance"),
    "matern32": ("lengthscale", "variance"),
    "matern52": ("lengthscale", "variance"),
    "rational_quadratic": ("lengthscale", "alpha", "variance"),
    "periodic": ("period", "lengthscale", "variance"),
    "linear": (),
}
# A kernel that is deeper inside brackets than this was not written by a person.
_DEEPEST = 20
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d]\w*)"
    r"|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<sign>[-+*(),=]))"
)


class Quantity(NamedTuple):
    """A number and the unit behind it, "" for none."""

    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value!r} {self.unit}".strip()


class Single(NamedTuple):
    """One kernel: its name, the parameters that were stated, and the columns it looks at (all if there are none)."""

    name: str
    parameters: tuple[tuple[str, Quantity], ...] = ()
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{name}={quantity}" for name, quantity in self.parameters]
        parts += [f"'{column}'" if '"' in column else f'"{column}"' for column in self.columns]
        return self.name + (f"({', '.join(parts)})" if parts else "")


class Product(NamedTuple):
    """Kernels multiplied."""

    factors: tuple["Single | Sum | Product", ...]

    def __str__(self) -> str:
        return " * ".join(f"({factor})" if isinstance(factor, Sum) else str(factor) for factor in self.factors)


class Sum(NamedTuple):
    """Kernels added."""

    terms: tuple["Single | Sum | Product", ...]

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms))


Expression = Single | Product | Sum


def read_kernel(text: str) -> Expression:
    """The kernel that a text describes, or an error that quotes the place.

    Args:
        text: see the top of this file.

    Example:
        >>> str(read_kernel("linear+periodic(1 year)*rbf"))
        'linear + periodic(period=1.0 year) * rbf'
    """
    reader = _Reader(text)
    found = reader.sum(0)
    if reader.kind:
        raise reader.error("the end, `+` or `*`")
    return found


def is_name(word: str) -> bool:
    """Whether a word is the name of a kernel, whatever its capitals and underscores."""
    return _known(word) is not None


def _known(word: str) -> str | None:
    return next((each for each in PARAMETERS if each.replace("_", "") == word.lower().replace("_", "")), None)


class _Reader:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                start = place + len(text[place:]) - len(text[place:].lstrip())
                raise ValueError(f"kernel {text!r}: {text[start]!r} at character {start + 1} has no meaning here")
            kind = str(match.lastgroup)
            self.tokens.append((match[kind] if kind == "sign" else kind, match[kind], match.start(kind)))
            place = match.end()
        self.next = 0

    @property
    def kind(self) -> str:
        """Of the next token; "" at the end."""
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    def take(self) -> str:
        self.next += 1
        return self.tokens[self.next - 1][1]

    def error(self, wanted: str) -> ValueError:
        if not self.kind:
            return ValueError(f"kernel {self.text!r} ends where {wanted} should be")
        _, seen, place = self.tokens[self.next]
        return ValueError(f"kernel {self.text!r}: {seen!r} at character {place + 1} should be {wanted}")

    def sum(self, depth: int) -> Expression:
        return self._chain("+", depth)

    def _chain(self, sign: str, depth: int) -> Expression:
        part = (lambda: self._chain("*", depth)) if sign == "+" else (lambda: self._factor(depth))
        parts = [part()]
        while self.kind == sign:
            self.take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else (Sum if sign == "+" else Product)(tuple(parts))

    def _factor(self, depth: int) -> Expression:
        if self.kind == "(":
            if depth >= _DEEPEST:
                raise ValueError(f"kernel: brackets are nested more than {_DEEPEST} deep; write a simpler kernel")
            self.take()
            inside = self.sum(depth + 1)
            self._expect(")", "`)`")
            return inside
        if self.kind != "word":
            raise self.error("the name of a kernel")
        place, name = self.next, self.take()
        known = _known(name)
        if known is None:
            self.next = place
            raise self.error(f"one of {', '.join(PARAMETERS)}")
        if self.kind != "(":
            return Single(known)
        self.take()
        stated, columns = self._parts(known)
        self._expect(")", "`,` or `)`")
        return Single(known, tuple(stated.items()), tuple(columns))

    def _parts(self, kernel: str) -> tuple[dict[str, Quantity], list[str]]:
        stated: dict[str, Quantity] = {}
        columns: list[str] = []
        while True:
            following = self.tokens[self.next + 1][0] if self.next + 1 < len(self.tokens) else ""
            if self.kind == "number":
                allowed = PARAMETERS[kernel]
                if not allowed or allowed[0] in stated:
                    raise self.error("a column" if not allowed else f"named, one of {', '.join(allowed[1:])} = number")
                stated[allowed[0]] = self._quantity()
            elif self.kind == "word" and following == "=":
                if self.tokens[self.next][1] not in PARAMETERS[kernel]:
                    raise self.error(f"a parameter of {kernel}: {', '.join(PARAMETERS[kernel]) or 'it has none'}")
                name = self.take()
                self.take()
                stated[name] = self._quantity()
            elif self.kind == "word":
                columns.append(self._words())
            elif self.kind in ("double", "single"):
                columns.append(self.take())
            else:
                raise self.error("a number or a column")
            if self.kind != ",":
                return stated, columns
            self.take()

    def _words(self) -> str:
        """A column's name without quotes, which may be several words, as they stand in the text."""
        first = last = self.next
        while self.kind == "word":
            last = self.next
            self.take()
        return self.text[self.tokens[first][2] : self.tokens[last][2] + len(self.tokens[last][1])]

    def _quantity(self) -> Quantity:
        if self.kind != "number":
            raise self.error("a positive number")
        place, value = self.next, float(self.take())
        if not (value > 0 and math.isfinite(value)):
            self.next = place
            raise self.error("a positive number")
        return Quantity(value, self.take() if self.kind == "word" else "")

    def _expect(self, kind: str, wanted: str) -> None:
        if self.kind != kind:
            raise self.error(wanted)
        self.take()

"""`--kernel` and `--period`: the text that the estimator reads, with units of time and columns of the table put in."""

from collections.abc import Sequence

from fsplaplace.cli._columns import DAYS_PER_YEAR, Column
from fsplaplace.estimators import Expression, Product, Quantity, Single, Sum, read_kernel

# In years. A month is the twelfth part of one.
_UNITS = {
    "second": 1 / (86400 * DAYS_PER_YEAR),
    "minute": 1 / (1440 * DAYS_PER_YEAR),
    "hour": 1 / (24 * DAYS_PER_YEAR),
    "day": 1 / DAYS_PER_YEAR,
    "week": 7 / DAYS_PER_YEAR,
    "month": 1 / 12,
    "year": 1.0,
}


def kernel_text(text: str, period: str | None, columns: Sequence[Column]) -> str:
    """The kernel in the language of `FSPRegressor(kernel=...)`.

    Args:
        text: as typed, for instance "linear + periodic(1 year) * rbf".
        period: of the periodic parts that state none; a kernel without any gets `+ periodic(period) * rbf`.
        columns: of the table; a quantity of time is about the one that holds dates.
    """
    if period is None and _plain(text):
        return text
    expression = read_kernel(text)
    if period is not None:
        expression = _with_period(expression, period)
    return str(_mapped(expression, columns))


def _plain(text: str) -> bool:
    """Whether the estimator knows the text itself: a single word."""
    return text.isidentifier()


def _with_period(expression: Expression, period: str) -> Expression:
    read = read_kernel(f"periodic({period})")
    if not (isinstance(read, Single) and read.parameters and set(dict(read.parameters)) == {"period"}):
        raise ValueError(f"--period is {period!r}; pass a number and a unit of time, for instance '1 year' or 12")
    found = False

    def state(single: Single) -> Single:
        nonlocal found
        if single.name != "periodic":
            return single
        found = True
        if "period" in dict(single.parameters):
            raise ValueError(
                f"--period is {period!r}, but the kernel states a period itself: {single}; leave out one of them"
            )
        return single._replace(parameters=read.parameters + single.parameters, columns=read.columns + single.columns)

    stated = _each(expression, state)
    return stated if found else Sum((expression, Product((read, Single("rbf", columns=read.columns)))))


def _mapped(expression: Expression, columns: Sequence[Column]) -> Expression:
    """Quantities in the units of their columns, and columns by the names they have as numbers."""
    return _each(expression, lambda single: _in_columns(single, columns))


def _in_columns(single: Single, columns: Sequence[Column]) -> Single:
    known = {column.name: column for column in columns}
    if missing := [name for name in single.columns if name not in known]:
        raise ValueError(f"--kernel: {single} looks at {missing[0]!r}, but the inputs are {', '.join(known)}")
    chosen = [known[name] for name in single.columns]
    timed = [f"{name}={quantity}" for name, quantity in single.parameters if quantity.unit]
    if timed and not chosen:
        chosen = [column for column in columns if column.kind == "date"]
        if len(chosen) != 1:
            plain = tuple((name, Quantity(quantity.value)) for name, quantity in single.parameters)
            raise ValueError(
                f"--kernel: {single.name}({timed[0]}) is about time, but {len(chosen)} columns hold ISO dates; write a number in "
                f"the units of a column and name that, as in {Single(single.name, plain, (columns[0].name,))}"
            )
    if timed and any(column.kind != "date" for column in chosen):
        raise ValueError(f"--kernel: {single.name}({timed[0]}) is about time, but {chosen[0].name!r} holds no dates")
    parameters = tuple((name, _in_years(quantity)) for name, quantity in single.parameters)
    return Single(single.name, parameters, tuple(name for column in chosen for name in column.encoded))


def _in_years(quantity: Quantity) -> Quantity:
    if not quantity.unit:
        return quantity
    unit = quantity.unit.lower().removesuffix("s")
    if unit not in _UNITS:
        raise ValueError(f"--kernel: {quantity} has an unknown unit; use {', '.join(_UNITS)}")
    return Quantity(quantity.value * _UNITS[unit])


def _each(expression: Expression, change) -> Expression:
    match expression:
        case Sum(terms):
            return Sum(tuple(_each(term, change) for term in terms))
        case Product(factors):
            return Product(tuple(_each(factor, change) for factor in factors))
        case Single():
            return change(expression)

"""A traced network as a list of steps: plain values only, so that two traces of one network are equal."""

import dataclasses
from collections.abc import Callable
from typing import Any

from fsplaplace.networks.adapters._torch._operations import TABLE


@dataclasses.dataclass(frozen=True)
class Result:
    """The value that an earlier step computed."""

    name: str


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A weight or buffer, by its name in the module."""

    name: str


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice, which cannot be hashed before Python 3.12."""

    start: Any
    stop: Any
    step: Any


@dataclasses.dataclass(frozen=True)
class Step:
    """`name = operation(*args, **kwargs)`; `place` says where in the network, for messages."""

    name: str
    operation: str
    args: tuple
    kwargs: tuple[tuple[str, Any], ...]
    place: str


@dataclasses.dataclass(frozen=True)
class Program:
    """The steps of one forward pass, from `input` to `output`."""

    input: str
    steps: tuple[Step, ...]
    output: Result

    def run(self, tensors: dict[str, Any], x):
        """The output for a batch x, with the module's tensors by name."""
        values = {self.input: x}

        def resolve(value):
            match value:
                case Result(name):
                    return values[name]
                case Tensor(name):
                    return tensors[name]
                case Slice(start, stop, step):
                    return slice(resolve(start), resolve(stop), resolve(step))
                case tuple():
                    return tuple(resolve(part) for part in value)
                case _:
                    return value

        for step in self.steps:
            keywords = {key: resolve(value) for key, value in step.kwargs}
            args = [resolve(value) for value in step.args]
            values[step.name] = TABLE[step.operation](*args, **keywords)
        return values[self.output.name]


def result_names(value: Any) -> set[str]:
    """The names of all results inside an argument."""
    if isinstance(value, Result):
        return {value.name}
    if isinstance(value, Slice):
        value = (value.start, value.stop, value.step)
    return set().union(*(result_names(part) for part in value)) if isinstance(value, tuple) else set()


def convert(value: Any, reference: Callable[[Any], Any]) -> Any:
    """An argument of a traced call in plain values; `reference` translates what is not one, or raises."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case slice():
            return Slice(*(convert(part, reference) for part in (value.start, value.stop, value.step)))
        case tuple() | list():
            return tuple(convert(part, reference) for part in value)
    return value if value is Ellipsis else reference(value)

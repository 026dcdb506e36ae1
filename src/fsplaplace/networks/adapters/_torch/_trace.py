"""From a `torch.nn.Module` to a `Program`, by torch.fx; everything untranslatable is refused here, by name."""

import copy
import inspect
from typing import Any

from fsplaplace.networks.adapters._torch._layers import LAYERS, obstacle
from fsplaplace.networks.adapters._torch._operations import ATTRIBUTES, ONLY, TABLE, VIEWS
from fsplaplace.networks.adapters._torch._program import Program, Result, Step, Tensor, convert, result_names

_IN_PLACE_OPERATORS = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv", "imatmul": "matmul"}
# `op(x)` of these is the function of another name.
_ALIASES = {"hardtanh_": "hardtanh", "concatenate": "cat", "divide": "div", "multiply": "mul", "subtract": "sub"}


def trace(module: Any) -> tuple[Program, dict[str, Any]]:
    """The module's forward pass, and the torch tensors it uses by name.

    Tracing runs on a copy: torch.fx writes the constants it meets into the module.
    """
    import torch.fx
    from torch.fx.proxy import TraceError

    name = type(module).__name__
    for path, layer in module.named_modules():
        if layer._forward_hooks or layer._forward_pre_hooks:
            place = f"{type(layer).__name__} at {path or 'the top'}"
            raise ValueError(f"{name}: {place} has forward hooks, which are not translated; remove them")
    module = copy.deepcopy(module)
    if type(module).__name__ in LAYERS and type(module).__module__.startswith("torch.nn.modules."):
        # A single layer: torch.fx would trace into it.
        graph = torch.fx.Graph()
        graph.output(graph.call_module("", (graph.placeholder("input"),)))
        return _Translation(module, name).translate(graph)
    try:
        graph = torch.fx.Tracer().trace(module)
    except (TraceError, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"{name} cannot be traced by torch.fx, as happens where Python control flow depends on values: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return _Translation(module, name).translate(graph)


class _Translation:
    """One pass over a traced graph."""

    def __init__(self, module: Any, name: str):
        self.module, self.name = module, name
        # A tensor used under several names (tied weights) goes by its first.
        named = [*module.named_parameters(), *module.named_buffers()]
        self.first_names = {id(tensor): path for path, tensor in reversed(named)}
        self.tensors: dict[str, Any] = {}

    def translate(self, graph: Any) -> tuple[Program, dict[str, Any]]:
        inputs, steps, output = [], [], None
        for node in graph.nodes:
            match node.op:
                case "placeholder":
                    inputs.append(node)
                case "get_attr":
                    # The step only gives the tensor a name among the results.
                    steps.append(Step(node.name, "identity", (self.tensor(node.target),), (), node.target))
                case "output":
                    output = self.convert(node.args[0], "the output")
                case "call_module":
                    steps.append(self.layer(node))
                case _:
                    steps.append(self.function(node))
        used = [node for node in inputs if node.users or node is inputs[0]]
        if len(used) != 1:
            raise ValueError(f"{self.name} takes {len(used)} inputs; pass a module of one")
        if not isinstance(output, Result):
            raise ValueError(f"{self.name} returns {type(output).__name__} instead of one tensor")
        self.check_in_place(steps)
        return Program(used[0].name, tuple(steps), output), self.tensors

    def layer(self, node: Any) -> Step:
        layer = self.module.get_submodule(node.target)
        place = f"{type(layer).__name__} at {node.target or 'the top'}"
        if reason := obstacle(layer):
            raise ValueError(f"{self.name}: {place} {reason}")
        function, tensors, options = LAYERS[type(layer).__name__]
        keywords = {key: self.convert(getattr(layer, key), place) for key in options}
        for key in tensors:
            path = f"{node.target}.{key}".removeprefix(".")
            keywords[key] = None if getattr(layer, key) is None else self.tensor(path)
        args, extra = self.convert(node.args, place), {key: self.convert(v, place) for key, v in node.kwargs.items()}
        return self.step(node.name, function, args, keywords | extra, place)

    def function(self, node: Any) -> Step:
        is_method = node.op == "call_method"
        written = node.target if is_method else getattr(node.target, "__name__", str(node.target))
        place = f"{'method' if is_method else 'function'} {written}" + _location(node)
        origin = "torch" if is_method else getattr(node.target, "__module__", None) or "torch"
        name = _IN_PLACE_OPERATORS.get(written) or _ALIASES.get(written, written)
        in_place = written in _IN_PLACE_OPERATORS
        if name.endswith("_") and not name.startswith("_"):
            name, in_place = name.removesuffix("_"), True
        if name not in TABLE or origin.split(".")[0] not in ("torch", "_operator", "builtins"):
            raise ValueError(f"{self.name}: {place} is outside the list of translated operations")
        keywords = {key: self.convert(value, place) for key, value in node.kwargs.items()}
        return self.step(node.name, name, self.convert(node.args, place), keywords, place, in_place)

    def step(self, name, operation, args, keywords, place, in_place=False) -> Step:
        try:
            bound = inspect.signature(TABLE[operation]).bind(*args, **keywords)
        except TypeError as error:
            raise ValueError(f"{self.name}: {place} has arguments that are not translated: {error}") from error
        bound.apply_defaults()
        for key, wanted in ONLY.get(operation, {}).items():
            if bound.arguments[key] != wanted:
                raise ValueError(
                    f"{self.name}: {place} has {key}={bound.arguments[key]!r}; only {key}={wanted!r} is translated"
                )
        if operation in ("softmax", "log_softmax") and bound.arguments["dim"] is None:
            raise ValueError(f"{self.name}: {place} has no dim; pass dim=-1 or another axis")
        if operation == "getattr" and bound.arguments["name"] not in ATTRIBUTES:
            raise ValueError(f"{self.name}: attribute {bound.arguments['name']!r} of a tensor is not translated")
        if in_place or bound.arguments.get("inplace"):
            place += " (in place)"
        return Step(name, operation, args, tuple(keywords.items()), place)

    def convert(self, value: Any, place: str) -> Any:
        import torch

        def reference(found):
            if isinstance(found, torch.fx.Node):
                return Result(found.name)
            raise ValueError(
                f"{self.name}: {place} has an argument of type {type(found).__name__}, which is not translated"
            )

        return convert(value, reference)

    def tensor(self, path: str) -> Tensor:
        owner, _, attribute = path.rpartition(".")
        value = getattr(self.module.get_submodule(owner), attribute)
        name = self.first_names.get(id(value), path)
        self.tensors[name] = value
        return Tensor(name)

    def check_in_place(self, steps: list[Step]) -> None:
        """An in-place operation changes what its input is called elsewhere: harmless only if nothing reads it later."""
        memory: dict[str, str] = {}
        for index, step in enumerate(steps):
            sources = result_names(step.args[:1])
            in_place = step.place.endswith("(in place)")
            if sources and (in_place or step.operation in VIEWS):
                source = next(iter(sources))
                memory[step.name] = memory.get(source, source)
            if in_place and sources:
                shared = memory[step.name]
                old = {n for n in (shared, *memory) if memory.get(n, n) == shared and n != step.name}
                for later in steps[index + 1 :]:
                    if old & (result_names(later.args) | result_names(tuple(value for _, value in later.kwargs))):
                        raise ValueError(
                            f"{self.name}: {step.place} changes a value that {later.place} reads afterwards; "
                            "set inplace=False"
                        )


def _location(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).keys())
    return f" in {stack[-1]}" if stack and stack[-1] else ""

"""Layers of `torch.nn` as calls of functions: which function, which of the layer's tensors and which of its options."""

from typing import Any, NamedTuple


class Layer(NamedTuple):
    """A function of `_operations.TABLE`, and the layer's attributes it takes by the same names."""

    function: str
    tensors: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


_POOL = ("kernel_size", "stride", "padding", "ceil_mode")

LAYERS: dict[str, Layer] = {
    "Linear": Layer("linear", ("weight", "bias")),
    "Embedding": Layer("embedding", ("weight",), ("max_norm",)),
    "LayerNorm": Layer("layer_norm", ("weight", "bias"), ("normalized_shape", "eps")),
    "GroupNorm": Layer("group_norm", ("weight", "bias"), ("num_groups", "eps")),
    "Flatten": Layer("flatten", options=("start_dim", "end_dim")),
    "Unflatten": Layer("unflatten", options=("dim", "unflattened_size")),
    "Identity": Layer("identity"),
    "ReLU": Layer("relu", options=("inplace",)),
    "ReLU6": Layer("relu6", options=("inplace",)),
    "LeakyReLU": Layer("leaky_relu", options=("negative_slope", "inplace")),
    "ELU": Layer("elu", options=("alpha", "inplace")),
    "SELU": Layer("selu", options=("inplace",)),
    "GELU": Layer("gelu", options=("approximate",)),
    "SiLU": Layer("silu", options=("inplace",)),
    "Mish": Layer("mish", options=("inplace",)),
    "Tanh": Layer("tanh"),
    "Sigmoid": Layer("sigmoid"),
    "LogSigmoid": Layer("logsigmoid"),
    "Softplus": Layer("softplus", options=("beta", "threshold")),
    "Softsign": Layer("softsign"),
    "Hardtanh": Layer("hardtanh", options=("min_val", "max_val", "inplace")),
    "Softmax": Layer("softmax", options=("dim",)),
    "LogSoftmax": Layer("log_softmax", options=("dim",)),
    "Dropout": Layer("dropout", options=("training", "inplace")),
    "Dropout1d": Layer("dropout", options=("training", "inplace")),
    "Dropout2d": Layer("dropout", options=("training", "inplace")),
    "AlphaDropout": Layer("dropout", options=("training", "inplace")),
    "AvgPool1d": Layer("avg_pool1d", options=(*_POOL, "count_include_pad")),
    "AvgPool2d": Layer("avg_pool2d", options=(*_POOL, "count_include_pad", "divisor_override")),
}
for _ndim in ("1d", "2d"):
    LAYERS[f"Conv{_ndim}"] = Layer(f"conv{_ndim}", ("weight", "bias"), ("stride", "padding", "dilation", "groups"))
    LAYERS[f"MaxPool{_ndim}"] = Layer(f"max_pool{_ndim}", options=(*_POOL, "dilation", "return_indices"))
    LAYERS[f"AdaptiveAvgPool{_ndim}"] = Layer(f"adaptive_avg_pool{_ndim}", options=("output_size",))
    LAYERS[f"BatchNorm{_ndim}"] = Layer(
        "batch_norm", ("running_mean", "running_var", "weight", "bias"), ("training", "eps")
    )


def obstacle(layer: Any) -> str | None:
    """Why this layer cannot be a function of one input, or cannot be translated; None if it can."""
    kind = type(layer).__name__
    if not type(layer).__module__.startswith("torch.nn.modules.") or kind not in LAYERS:
        return "is outside the list of translated layers"
    if getattr(layer, "training", False) and ("BatchNorm" in kind or "Dropout" in kind):
        return "is in training mode, which depends on the batch or on chance; call module.eval() first"
    if "BatchNorm" in kind and layer.running_mean is None:
        return "keeps no running statistics (track_running_stats=False), so it depends on the batch"
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return f"has padding_mode={layer.padding_mode!r}; only 'zeros' is translated"
    return None

"""Torch modules as JAX functions: outputs and gradients are torch's; the untranslatable is refused by name."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.networks.adapters import copy_to_torch

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Function(nn.Module):
    """A linear layer, then a function of its output: gradients must pass through the function."""

    def __init__(self, function, width=6):
        super().__init__()
        self.linear, self.function = nn.Linear(width, width), function

    def forward(self, x):
        return self.function(self.linear(x))


class Residual(nn.Module):
    """A block of a residual network with its in-place operations."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride), nn.BatchNorm2d(channels))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return self.relu(out)


def resnet():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Residual(8, 8, 1),
        Residual(8, 12, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(12, 2),
    )


LAYERS = {
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (4, 11)),
    "conv2d": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), (4, 9, 8)),
    "conv2d_same": (nn.Conv2d(2, 3, (2, 3), padding="same", bias=False), (2, 6, 7)),
    "conv1d_valid": (nn.Conv1d(2, 3, 3, padding="valid"), (2, 7)),
    "max_pool1d": (nn.Sequential(nn.Conv1d(2, 3, 1), nn.MaxPool1d(3, 2, 1)), (2, 9)),
    "max_pool2d_dilated": (nn.Sequential(nn.Conv2d(2, 3, 1), nn.MaxPool2d(2, 1, 0, dilation=2)), (2, 6, 7)),
    "avg_pool1d": (nn.Sequential(nn.Conv1d(2, 3, 1), nn.AvgPool1d(3, padding=1, count_include_pad=False)), (2, 9)),
    "avg_pool2d": (nn.Sequential(nn.Conv2d(2, 3, 1), nn.AvgPool2d((3, 2), (2, 1), (1, 1))), (2, 7, 6)),
    "avg_pool2d_divisor": (nn.Sequential(nn.Conv2d(2, 3, 1), nn.AvgPool2d(2, divisor_override=3)), (2, 6, 6)),
    "adaptive_avg_pool1d": (nn.Sequential(nn.Conv1d(2, 3, 1), nn.AdaptiveAvgPool1d(3)), (2, 7)),
    "adaptive_avg_pool2d": (nn.Sequential(nn.Conv2d(2, 3, 1), nn.AdaptiveAvgPool2d((2, None))), (2, 5, 4)),
    "batch_norm1d": (nn.BatchNorm1d(5), (5,)),
    "batch_norm1d_plain": (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(5, affine=False, eps=1e-2)), (5, 4)),
    "batch_norm2d": (nn.BatchNorm2d(3), (3, 4, 5)),
    "layer_norm": (nn.LayerNorm((3, 4), eps=1e-3), (3, 4)),
    "group_norm": (nn.GroupNorm(2, 6), (6, 4)),
    "unflatten": (nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 2, 2), nn.Flatten()), (6,)),
}

FUNCTIONS = {
    **{
        kind.__name__: kind(*options)
        for kind, *options in (
            (nn.ReLU,), (nn.LeakyReLU, 0.2), (nn.ELU, 0.7), (nn.SELU,), (nn.GELU,), (nn.SiLU,), (nn.Mish,), (nn.Tanh,),
            (nn.Sigmoid,), (nn.LogSigmoid,), (nn.Softplus, 2.0, 1.5), (nn.Softsign,), (nn.Hardtanh, -0.3, 0.4),
            (nn.ReLU6,), (nn.Softmax, 1), (nn.LogSoftmax, -1), (nn.Identity,),
        )
    },
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "activations": lambda x: F.elu(F.leaky_relu(x)) + F.gelu(x, approximate="tanh") * F.silu(x) - torch.tanh(x),
    "more_activations": lambda x: F.hardtanh(x) + F.relu6(x) / 2 + F.softplus(x, beta=3) + torch.relu(x).sigmoid(),
    "softmaxes": lambda x: F.softmax(x, dim=1) + x.softmax(-1) + F.log_softmax(x, dim=-1),
    "scalars": lambda x: (2 - x) / 3 + 1.5 * x**2 - (-x) + torch.sub(x, x * x, alpha=0.5) + torch.add(x, 1, alpha=2),
    "matmul": lambda x: torch.matmul(x.unsqueeze(2), x.unsqueeze(1)) @ x.unsqueeze(-1),
    "shapes": lambda x: x.view(x.size(0), 2, -1).permute(0, 2, 1).reshape(x.shape[0], 6).transpose(0, 1).t(),
    "squeezes": lambda x: x.unsqueeze(1).squeeze(1).unsqueeze(0).squeeze(0) + torch.flatten(x.view(-1, 3, 2), 1),
    "concatenation": lambda x: torch.cat([x, x.mean(dim=1, keepdim=True), torch.mean(x, -1).unsqueeze(1)], dim=1),
    "slices": lambda x: x[:, 1:5:2] * x[..., -2:] + torch.stack([x[:, 0], x[:, -1]], dim=1),
    "chunks": lambda x: torch.chunk(x, 2, dim=1)[0] * x.chunk(2, 1)[1].exp(),
    "sums": lambda x: x.sum(1, keepdim=True) + x.clamp(-0.1, 0.2) + torch.sqrt(torch.abs(x) + 1),
    "in_place": lambda x: F.relu(x.mul_(2.0).add_(1), inplace=True),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
}  # fmt: skip


def assert_same_as_torch(module, x, tolerance):
    """Outputs, and the gradient of a random linear function of them in every weight."""
    module.eval()
    model = fsp.as_model(module)
    outputs = module(x)
    direction = torch.randn(outputs.shape, dtype=outputs.dtype)
    gradients = torch.autograd.grad((outputs * direction).sum(), list(module.parameters()))
    inputs, seed = jnp.asarray(x.numpy()), jnp.asarray(direction.numpy()).reshape(x.shape[0], -1)

    @jax.jit
    def evaluate(params):
        values, pull = jax.vjp(lambda p: model.evaluate(p, inputs), params)
        return values, pull(seed)[0]

    values, pulled = evaluate(model.params)
    np.testing.assert_allclose(values, outputs.detach().numpy().reshape(len(x), -1), rtol=tolerance, atol=tolerance)
    for (name, _), gradient in zip(module.named_parameters(), gradients, strict=True):
        scale = 1 + float(gradient.abs().max())
        np.testing.assert_allclose(pulled[name], gradient.numpy(), rtol=0, atol=tolerance * scale, err_msg=name)


def with_statistics(module, shape):
    """Running statistics that are not the initial zeros and ones."""
    module.train()
    with torch.no_grad():
        module(2 * torch.randn(20, *shape, dtype=next(module.parameters()).dtype) + 1)
    return module


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_torch(x64, name):
    module, shape = LAYERS[name]
    torch.manual_seed(1)
    module = with_statistics(module.double(), shape)
    assert_same_as_torch(module, torch.randn(4, *shape, dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_equals_torch(x64, name):
    torch.manual_seed(2)
    assert_same_as_torch(Function(FUNCTIONS[name]).double(), torch.randn(5, 6, dtype=torch.float64), 1e-10)


def test_embedding_takes_whole_numbers_in_floating_point():
    torch.manual_seed(3)
    module = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 2))
    x = torch.tensor([[0, 6, 3], [2, 2, 5]])
    outputs = fsp.as_model(module)(jnp.asarray(x.numpy(), dtype=float))
    np.testing.assert_allclose(outputs, module(x).detach().numpy(), atol=1e-6)


def test_residual_network_equals_torch_in_single_precision():
    module = with_statistics(resnet(), (3, 12, 12))
    assert_same_as_torch(module, torch.randn(4, 3, 12, 12), 1e-5)


def test_tangents_of_a_residual_network_match_its_gradients():
    model = fsp.as_model(with_statistics(resnet(), (3, 8, 8)).eval())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 8, 8)), jnp.float32)
    direction = jax.tree.map(jnp.ones_like, model.params)

    @jax.jit
    def both(params):
        values, tangent = jax.jvp(lambda p: model.evaluate(p, x), (params,), (direction,))
        pulled = jax.vjp(lambda p: model.evaluate(p, x), params)[1](jnp.ones_like(values))[0]
        return jnp.sum(tangent), sum(jnp.sum(leaf) for leaf in jax.tree.leaves(pulled))

    forward, reverse = both(model.params)
    np.testing.assert_allclose(forward, reverse, rtol=1e-3)


@pytest.mark.slow
def test_a_residual_network_has_a_posterior_and_is_left_as_it_was():
    module = with_statistics(resnet(), (3, 8, 8)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    X = torch.randn(6, 3, 8, 8)
    y = np.random.default_rng(0).normal(size=(6, 2))
    prior = fsp.Prior(RBF(lengthscale=10.0), num_outputs=2)
    points = torch.randn(6, 3, 8, 8).numpy()
    likelihood = fsp.likelihoods.Gaussian(0.5)
    posterior = fsp.laplace(fsp.as_model(module), prior, likelihood, X.numpy(), y, context_points=points)
    prediction = posterior.predict(X.numpy())
    np.testing.assert_allclose(prediction.map, module(X).detach().numpy(), atol=1e-5)
    assert np.all(prediction.variance > 0)
    assert np.all(prediction.variance < 1.01)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_training_mode_is_refused_by_name():
    with pytest.raises(ValueError, match=r"BatchNorm2d at 1 is in training mode.*module\.eval\(\)"):
        fsp.as_model(resnet().train())
    with pytest.raises(ValueError, match=r"Dropout at 1 is in training mode"):
        fsp.as_model(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    with pytest.raises(ValueError, match=r"function dropout.*training=True"):
        fsp.as_model(Function(lambda x: F.dropout(x)).eval())
    with pytest.raises(ValueError, match=r"BatchNorm1d at 0 keeps no running statistics"):
        fsp.as_model(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)).eval())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3)), "LSTM at 1 is outside the list"),
        (nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular")), "Conv2d at 0 has padding_mode"),
        (nn.Sequential(nn.Conv2d(2, 2, 1), nn.MaxPool2d(2, ceil_mode=True)), "MaxPool2d at 1 has ceil_mode=True"),
        (nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), "Embedding at 0 has max_norm=1.0"),
        (Function(torch.erfinv), "function erfinv is outside the list"),
        (Function(lambda x: x.cumsum(0)), "method cumsum is outside the list"),
        (Function(lambda x: F.softmax(x)), "function softmax has no dim"),
        (Function(lambda x: torch.div(x, 2, rounding_mode="floor")), "function div has arguments"),
        (Function(lambda x: x.to(torch.float16)), "method to is outside the list"),
        (Function(lambda x: x if x.sum() > 0 else -x), "cannot be traced by torch.fx"),
        (Function(lambda x: (x, x)), "returns tuple instead of one tensor"),
    ],
)
def test_an_operation_outside_the_list_is_refused_by_name(module, message):
    with pytest.raises(ValueError, match=message):
        fsp.as_model(module.eval())


def test_an_in_place_operation_on_a_value_that_is_read_later_is_refused():
    with pytest.raises(ValueError, match=r"relu.*in place.*reads afterwards"):
        fsp.as_model(Function(lambda x: F.relu(x, inplace=True) + x))
    with pytest.raises(ValueError, match=r"mul_.*reads afterwards"):
        fsp.as_model(Function(lambda x: (x.view(-1, 6).mul_(2.0), x)[1] * 1.0))


def test_hooks_are_refused():
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="Linear at 0 has forward hooks"):
        fsp.as_model(module)


def test_tied_weights_are_one_weight(x64):
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    module[2].weight = module[0].weight
    assert fsp.as_model(module).num_params == 4 * 4 + 4 + 4
    assert_same_as_torch(module, torch.randn(3, 4, dtype=torch.float64), 1e-10)


def test_constants_are_kept_and_the_module_is_left_as_it_was():
    module = Function(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    before = set(vars(module)) | set(dir(module))
    x = torch.randn(2, 6)
    outputs = fsp.as_model(module)(jnp.asarray(x.numpy()))
    np.testing.assert_allclose(outputs, module(x).detach().numpy(), atol=1e-6)
    assert set(vars(module)) | set(dir(module)) == before


def test_weights_without_gradient_or_outside_the_mask_are_held_fixed():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    assert fsp.as_model(module, mask=lambda path: "2." in path).num_params == 5
    module[0].requires_grad_(False)
    assert fsp.as_model(module).num_params == 5


def test_double_precision_needs_the_64_bit_mode():
    with pytest.raises(ValueError, match=r"0\.weight is float64, but JAX runs in 32 bits"):
        fsp.as_model(nn.Sequential(nn.Linear(2, 2)).double())


def test_two_traces_of_one_module_share_their_compiled_programs():
    module = resnet().eval()
    first, second = fsp.as_model(module), fsp.as_model(module)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert hash(first.call) == hash(second.call)


def test_weights_are_copied_back_into_the_module():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    model = fsp.as_model(module, mask=lambda path: "2." in path)
    moved = model.with_params(jax.tree.map(lambda leaf: leaf + 0.5, model.params))
    x = torch.randn(5, 3)
    assert copy_to_torch(moved, module) is module
    np.testing.assert_allclose(module(x).detach().numpy(), moved(jnp.asarray(x.numpy())), atol=1e-6)
    with pytest.raises(ValueError, match=r"2\.bias has shape \(1,\) in the model, but \(2,\) in Sequential"):
        copy_to_torch(moved, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    with pytest.raises(ValueError, match="was not made from a torch module"):
        copy_to_torch(fsp.as_model((lambda p, x: x @ p, jnp.ones((3, 1)))), module)


def test_importing_the_library_imports_no_network_library():
    code = "import sys, fsplaplace; print([n for n in ('torch', 'flax', 'haiku', 'matplotlib') if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

"""Noise whose scale varies with the inputs, of many rows: small networks for its logarithm, judged by rows they were not fitted to."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Networks, each fitted without a part of its own of the rows.
_FOLDS = 4
_WIDTH, _STEPS, _BATCH, _STEP_SIZE = 32, 2000, 256, 5e-3
# Steps between two looks at the rows left out; the best look is kept, the first being constant noise.
_LOOK = 50
# Standard errors by which varying noise must predict rows better than constant noise.
_SURE = 2.0
# Quantiles of the fitted logarithms beyond which no input goes: far from the data a network says anything.
_RANGE = (0.005, 0.995)
# No logarithm of a variance that was fitted is larger; a file that says so was not written here.
_LARGEST_LOG = 100.0


class Misses(NamedTuple):
    r"""What rows say about the noise of one target, in units of constant noise: residuals of predictions that did not use the row.

    Attributes:
        squares: $e^2 / \sigma^2$.
        variance: $v / \sigma^2$, the variance of the prediction.
        weights: of the rows, with mean 1.
    """

    squares: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    def rows(self, index: Int[np.ndarray, " k"]) -> "Misses":
        """Some of them."""
        return Misses(*(part[index] for part in self))

    def loss(self, log: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        r"""Weight times minus the log density for a noise of $e^g$ times the constant one's variance, up to a constant."""
        total = self.variance + np.exp(log)
        return 0.5 * self.weights * (self.squares / total + np.log(total))

    def slope(self, log: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Derivative of the loss in g."""
        own = np.exp(log)
        total = self.variance + own
        return 0.5 * self.weights * own * (1.0 - self.squares / total) / total


class LogNetwork(NamedTuple):
    """A network of two layers of tanh units with one output: weights and biases, layer by layer."""

    layers: tuple[tuple[Float[np.ndarray, "i o"], Float[np.ndarray, " o"]], ...]

    @classmethod
    def constant(cls, num_columns: int, level: float, generator: np.random.Generator) -> "LogNetwork":
        """Random features, and the same output everywhere."""
        sizes = (num_columns, _WIDTH, _WIDTH)
        hidden = [
            (generator.normal(size=(i, o)) / np.sqrt(i), 0.5 * generator.normal(size=o))
            for i, o in itertools.pairwise(sizes)
        ]
        return cls((*hidden, (np.zeros((_WIDTH, 1)), np.full(1, level))))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        return self._activations(x)[-1][:, 0]

    def fits(self, num_columns: int) -> bool:
        """Whether layers follow each other from so many columns to one output, and all numbers are finite."""
        shapes = [weights.shape for weights, _ in self.layers]
        return (
            all(len(shape) == 2 for shape in shapes)
            and [shape[0] for shape in shapes[:1]] == [num_columns]
            and all(before[1] == after[0] for before, after in itertools.pairwise(shapes))
            and shapes[-1][1] == 1
            and all(bias.shape == (weights.shape[1],) for weights, bias in self.layers)
            and all(bool(np.all(np.isfinite(part))) for layer in self.layers for part in layer)
        )

    def _activations(self, x: Float[np.ndarray, "n d"]) -> list[np.ndarray]:
        """The inputs of each layer, and the output."""
        found = [x]
        for number, (weights, bias) in enumerate(self.layers):
            value = found[-1] @ weights + bias
            found.append(value if number == len(self.layers) - 1 else np.tanh(value))
        return found

    def gradient(self, x: Float[np.ndarray, "b d"], misses: Misses) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of the mean loss of some rows, layer by layer."""
        found = self._activations(x)
        back = misses.slope(found[-1][:, 0])[:, None] / len(x)
        gradients = []
        for (weights, _), entering in zip(reversed(self.layers), reversed(found[:-1]), strict=True):
            gradients.append((entering.T @ back, back.sum(axis=0)))
            back = (back @ weights.T) * (1.0 - entering**2)
        return gradients[::-1]


def _fitted(
    x: Float[np.ndarray, "n d"], misses: Misses, held: Int[np.ndarray, " k"], generator: np.random.Generator
) -> LogNetwork:
    """The network that predicts the rows held out best on the way of Adam over the others."""
    kept = np.setdiff1d(np.arange(len(x)), held)
    network = LogNetwork.constant(x.shape[1], _constant(misses.rows(kept)), generator)
    at_held = misses.rows(held)
    best, least = network, float(np.mean(at_held.loss(network(x[held]))))
    moments = [[(np.zeros_like(part), np.zeros_like(part)) for part in layer] for layer in network.layers]
    for step in range(1, _STEPS + 1):
        batch = generator.choice(kept, min(_BATCH, len(kept)), replace=False)
        size = 0.5 * _STEP_SIZE * (1 + np.cos(np.pi * step / _STEPS))
        layers = []
        for layer, slopes, kept_moments in zip(
            network.layers, network.gradient(x[batch], misses.rows(batch)), moments, strict=True
        ):
            new = []
            for place, (part, slope) in enumerate(zip(layer, slopes, strict=True)):
                first, second = kept_moments[place]
                first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
                kept_moments[place] = (first, second)
                scale = np.sqrt(second / (1 - 0.99**step)) + 1e-8
                new.append(part - size * first / (1 - 0.9**step) / scale)
            layers.append(tuple(new))
        network = LogNetwork(tuple(layers))
        if step % _LOOK == 0:
            loss = float(np.mean(at_held.loss(network(x[held]))))
            if loss < least:
                best, least = network, loss
    return best


def _constant(misses: Misses, log: Float[np.ndarray, " n"] | float = 0.0) -> float:
    """What, added to the logarithm of the noise's variance, predicts best."""
    levels = np.linspace(-4, 4, 161)
    losses = [np.mean(misses.loss(log + np.full(len(misses.squares), level))) for level in levels]
    return float(levels[np.argmin(losses)])


class NoiseNetworks(NamedTuple):
    """What the noise's scale is multiplied by: for each target several networks for the logarithm of its square.

    Attributes:
        logs: the networks of each target, whose outputs are averaged.
        limits: the least and the largest logarithm of each target.
        levels: what is subtracted from the logarithm of each target; see `levelled`.
        gain: what rows gained that a network was not fitted to, in nats for each, and its standard error.
    """

    logs: tuple[tuple[LogNetwork, ...], ...]
    limits: tuple[tuple[float, float], ...]
    levels: tuple[float, ...]
    gain: tuple[float, float]

    @classmethod
    def of(
        cls, x: Float[np.ndarray, "n d"], misses: tuple[Misses, ...], generator: np.random.Generator
    ) -> "NoiseNetworks":
        """Fitted to scaled inputs and what was missed there, one for each target. Time: about two seconds for each."""
        logs, limits, gains = [], [], np.zeros(len(x))
        for of_target in misses:
            networks = []
            for held in np.array_split(generator.permutation(len(x)), _FOLDS):
                network = _fitted(x, of_target, held, generator)
                networks.append(network)
                plain = np.full(len(held), _constant(of_target.rows(np.setdiff1d(np.arange(len(x)), held))))
                at_held = of_target.rows(held)
                gains[held] += at_held.loss(plain) - at_held.loss(network(x[held]))
            mean = np.mean([network(x) for network in networks], axis=0)
            logs.append(tuple(networks))
            limits.append(tuple(float(value) for value in np.quantile(mean, _RANGE)))
        error = float(np.std(gains) / np.sqrt(len(x)))
        return cls(tuple(logs), tuple(limits), tuple(map(_constant, misses)), (float(np.mean(gains)), error))

    def levelled(self, x: Float[np.ndarray, "k d"], misses: tuple[Misses, ...]) -> "NoiseNetworks":
        """With the size of the noise that is best for rows that neither the posterior's network nor these networks were fitted to.

        Rows that a network was trained on miss less than new ones do, also if their linear influence is taken out.
        """
        logs = 2 * np.log(self._replace(levels=(0.0,) * len(misses)).relative(x))
        return self._replace(levels=tuple(-_constant(each, log) for each, log in zip(misses, logs.T, strict=True)))

    @property
    def in_fit(self) -> bool:
        """False: the posterior was made with constant noise; of many rows it hardly differs."""
        return False

    @property
    def varies(self) -> bool:
        """Whether rows that were left out say so."""
        gain, error = self.gain
        return gain > _SURE * error

    def described(self) -> dict[str, Any]:
        """As numbers in lists, for a file."""
        networks = [[[part.tolist() for part in layer] for layer in log.layers] for logs in self.logs for log in logs]
        return {"networks": networks, "limits": list(self.limits[0]), "level": self.levels[0]}

    @classmethod
    def restored(cls, content: Any, num_columns: int) -> "NoiseNetworks | None":
        """Of one target, from what `described` wrote; None if it is anything else."""
        try:
            networks = [
                LogNetwork(tuple((np.asarray(w, float), np.asarray(b, float)) for w, b in layers))
                for layers in content["networks"]
            ]
            low, high = map(float, content["limits"])
            level = float(content["level"])
        except (TypeError, ValueError, KeyError):
            return None
        fits = bool(networks) and low <= high and all(network.fits(num_columns) for network in networks)
        if not fits or not np.all(np.isfinite([low, high, level])) or max(map(abs, (low, high, level))) > _LARGEST_LOG:
            return None
        return cls((tuple(networks),), ((low, high),), (level,), (np.nan, np.nan))

    def relative(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """The factors at scaled inputs."""
        logs = [np.mean([network(x) for network in networks], axis=0) for networks in self.logs]
        kept = [
            np.clip(log, *limits) - level for log, limits, level in zip(logs, self.limits, self.levels, strict=True)
        ]
        return np.exp(0.5 * np.stack(kept, axis=1))

"""How much of a prior a network holds: the record, and its sentences."""

import math

import equinox as eqx

from fsplaplace.host import one_blas_thread
from fsplaplace.kernels import Remarks
from fsplaplace.networks._model import Model
from fsplaplace.networks._region import Region
from fsplaplace.networks._tangent_kernel import fully_connected_network, tangent_kernel

# A network is large enough if it loses less than this many nats for a new target: a tenth of what a bad posterior loses.
ENOUGH = 0.01


class CapacityWarning(UserWarning):
    """Too small for the prior: a network, the number of context points, or the number of directions."""


class Held(eqx.Module):
    """How much of a prior the features of a network hold in a region. Prints as a sentence or two.

    Attributes:
        hidden: widths of the hidden layers; None for a network that is no `MLP`.
        num_params: the number of weights.
        share: of a function drawn from the prior and told at `num_points` points, the share of the variance that the network
            gets right at other points, of what can be known from those points.
        loss: what the log predictive density of a new target is expected to lose against the exact process, in nats, given
            100 targets. It ranks networks much as the divergence from the exact process after training does, and is of
            its size (`benchmarks/results/width.md`).
        missed: the share of the prior variance that the features lack.
        covariance_error: distance of the covariance between points that the features imply from the prior's, relative.
        noise: standard deviation of those targets, in standard deviations of the prior.
        determined: the share of the prior variance in the region that its values at `num_points` points determine; if that is
            small, so many context points are too few for the prior's length scales.
        num_points: context points that this was computed with.
        wider: the narrowest of 2x50, 2x100, 2x150, 2x200 and 2x400 that is large enough, or about as good as the best; None if
            this network is large enough, or no wider one is better.
    """

    hidden: tuple[int, ...] | None = eqx.field(static=True)
    num_params: int = eqx.field(static=True)
    share: float = eqx.field(static=True)
    loss: float = eqx.field(static=True)
    missed: float = eqx.field(static=True)
    covariance_error: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    determined: float = eqx.field(static=True)
    num_points: int = eqx.field(static=True)
    wider: "Held | None" = None

    @property
    def enough(self) -> bool:
        """Whether the network loses less than 0.01 nats for a new target."""
        return self.loss <= ENOUGH

    @property
    def name(self) -> str:
        """ "2x50", "50, 20", or the number of weights."""
        if not self.hidden:
            return f"{self.num_params:,} weights"
        if len(set(self.hidden)) == 1:
            return f"{len(self.hidden)}x{self.hidden[0]}"
        return ", ".join(map(str, self.hidden))

    @property
    def remarks(self) -> Remarks:
        """What `fsplaplace.describe` says about it."""
        held = f"this network ({self.name}) holds {_percent(self.share)} of this prior"
        loss = f"a new target with noise of {self.noise:.2g} prior standard deviations loses {_nats(self.loss)}"
        if self.wider is not None:
            held += f"; {self.wider.name} would hold {_percent(self.wider.share)}"
            loss += f" ({self.wider.name}: {_nats(self.wider.loss)})"
        warnings = []
        if not self.enough:
            best = self if self.wider is None else self.wider
            advice = f"take {best.name}" if best.enough else f"{best.name} is about as good as any that was tried"
            warnings.append(f"this network is too small for this prior: {loss}; {advice}")
        if 1 - self.determined > max(self.noise**2, ENOUGH):
            warnings.append(
                f"{self.num_points} points determine {_percent(self.determined)} of this prior in this region: more context "
                "points are needed, or a smaller region"
            )
        return Remarks((f"{held}; {loss} against the exact process.",), tuple(warnings))

    def __str__(self) -> str:
        said = self.remarks
        return "\n".join(
            [*(text[0].upper() + text[1:] for text in said.sentences), *(f"WARNING: {text}" for text in said.warnings)]
        )

    def __repr__(self) -> str:
        return str(self)


def held_by(model: Model, region: Region, *, budget: float) -> Held:
    """How much of the prior in a region a network holds; `budget` as for `tangent_kernel`."""
    network = fully_connected_network(model)
    points = region.points.astype(model.dtype)
    with one_blas_thread():
        fit = region.fit(tangent_kernel(model, points, region.outputs, budget=budget), dtype=model.dtype)
    return Held(
        hidden=None if network is None else tuple(layer.weight.shape[0] for layer in network.layers[:-1]),
        num_params=model.num_params,
        **fit._asdict(),
        noise=region.noise,
        determined=region.determined,
        num_points=region.num_told,
    )


def _percent(share: float) -> str:
    """0.97 as "97 %", 0.9993 as "99.9 %": as many nines as there are, never more than there are."""
    missing = 100 * (1 - share)
    if missing < 1e-3:
        return "all"
    decimals = max(0, math.ceil(-math.log10(missing)))
    return f"{math.floor(100 * share * 10**decimals) / 10**decimals:.{decimals}f} %"


def _nats(loss: float) -> str:
    return f"{loss:.2g} nats" if loss >= 1e-3 else "less than 0.001 nats"

"""Every number and rule that decides something in this room, each with its reason; read by `laplace` and by `plan`."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fsplaplace.host import format_bytes

# ------------------------------------------------------------------------------------------------------------- points
# Default context points: enough for two-dimensional regions, and an eigenproblem of a tenth of a second.
NUM_CONTEXT = 500
# Training inputs that join the context points, in rows (points times outputs). At most as many as the dense solver takes
# along, at least 500: where the prior is not enforced at a training input, the features there are the network's own, which
# has learnt from the target (with half of 1,087 rows left out the evidence was 24 nats too high).
FEWEST_TRAINING_ROWS, MOST_TRAINING_ROWS = 500, 1500
# Context points of `fit_posterior` come in this fraction of the number asked for, so that data sets of similar size share
# programs.
CONTEXT_UNITS = 4
# Default guard points: as many as rank ridges alike in repeated draws, few enough to cost nothing.
NUM_GUARDS = 200
# Of these, the share between any two context points; the rest lie between neighbouring training inputs.
SHARE_ACROSS = 2 / 3
# Nearest rows that a training input is joined to when guard points are drawn between them.
NEIGHBOURS = 6
# Inputs like those to come, at which the loss against the exact process is estimated: its mean to about a tenth.
NUM_NEW = 200
# Share of distinct rows from which repetitions say nothing about inputs to come.
MOSTLY_DISTINCT = 0.7
# Rows among which the exact process of more targets than `MOST_TARGETS` looks for those that tell most about a new input.
MOST_NEIGHBOURHOOD = 20_000
# Points of each place at which implied and stated variance are compared: quantiles to a few per cent.
MOST_POINTS = 500
# Guard points times outputs at which ridges and means are judged: enough to rank them, small enough to be free.
MOST_JUDGED_ROWS = 400
# Context points times outputs at which the two means are compared as well.
MOST_WITNESS_ROWS = 200

# ----------------------------------------------------------------------------------------------- rank of the prior's factor
# Directions of the prior below this relative size are dropped: 1e-6 is where float32 features stop resolving them.
LARGEST_CUT = 1e-6
# Never below this: smaller eigenvalues of a float64 covariance are rounding.
SMALLEST_CUT = 1e-12
# All dropped directions together hold at most this share of the Gaussian noise variance at a point.
DROPPED_SHARE_OF_NOISE = 0.01
# A derivative multiplies the variance of the dropped directions by more than that of the function: directions of relative
# size 1e-12 have frequencies w with w^2 about this many times the kernel's own curvature (RBF: 2 log 1e12).
DROPPED_FREQUENCY = 55.0
# A factor of many points is complete with all but this share of the prior variance, or less if that shows in the noise.
MISSED_SHARE = 1e-3
# The most directions of a factor of many points if the network is small, where `Prior.factor` has 500 for each independent
# output: 5,288 rows with little noise ask for more (parkinsons: 1,186 have 99.9 %), and the eigenproblem takes seconds.
MOST_DIRECTIONS, DEFAULT_COLUMNS = 2000, 500
# The same for each independent output of a network with convolutions, where a pass takes a hundred times as long: the
# authors' number. With 54,000 images, 10 classes and 98,442 weights a quarter of an hour on one core instead of hours.
IMAGE_COLUMNS = 50
# Prior variance at the context points that a limit on the rank leaves out, over noise variance, from which it is said.
HIDDEN_DIRECTIONS = 0.1
# The authors' limit on Lanczos iterations, for the precision form.
LANCZOS_RANK = 500

# ------------------------------------------------------------------------------------------------------------ pull-back
# Up to this many context rows the N x N eigenproblem costs less than the passes it replaces.
LARGEST_DENSE = 2000
# Beyond it, up to this many weights, the p x p normal equations cost less than the passes and their compilation.
LARGEST_NORMAL = 4000
# Exponents of the relative ridges to choose from. Below the smallest the weights' own rounding shows in the predictions.
SMALLEST_RIDGE = {"float32": -10, "float64": -13}
# The same where the Jacobian itself is factored: with 1e-12 in float32 smooth means are closer to the exact process. But then the last
# digit of an input may move the mean by .01 of the prior's standard deviation, so that only two kinds of networks have them.
SMALLEST_RIDGE_OF_HELD = {"float32": -12, "float64": -13}
# The one kind holds the prior: it diverges from the exact process by at most so many nats for a new target. The other diverges by so many
# nats less than with the usual ridges, as many as are cautioned about.
HELD_DIVERGENCE, WORTH_ROUNDING = 1e-4, 0.05
LARGEST_RIDGE = -4
# The same if derivatives are observed and the Jacobian is factored: directions that hardly show in values carry them. In float32
# the mean of a Laplacian is off by 0.017 of its prior's standard deviation with 1e-10, by 0.005 with 1e-13, as in float64; under
# Matern-5/2 in float64 the standard deviation of a slope by 0.0026 with 1e-13, by 0.0017 with 1e-15.
SMALLEST_RIDGE_OF_DERIVATIVES = {"float32": -13, "float64": -15}
# Ridges whose divergence is at most this many times the lowest are as good: of them the one closest to the prior is taken,
# because a spike of the covariance between guard points does not show in the divergence.
AS_GOOD = 1.2
# Nats below which a divergence is rounding, and may be negative: all such are equal.
ROUNDED_DIVERGENCE = 1e-12
# Rows of what operators see that are solved for beside the context rows: as many as default context points.
MOST_ENFORCED = 500
# Numbers of directions are rounded up with zeros, so that fits of similar rank share compiled programs: to a multiple of this,
# and of a quarter of a power of two beyond; only up to this many bytes, where compiling takes longer than copying.
RANK_MULTIPLE, LARGEST_PADDED = 16, 2**24
# The same for the mode of labels and counts, whose programs are small and many.
MODE_MULTIPLE = 64
# Bytes up to which BLAS on the host has combined directions before XLA would have compiled the product.
LARGEST_ON_HOST = 2**24
# Precision beyond the prior's, over the largest, from which the data tell of a direction: below it is the rounding of eigenvalues.
TOLD_ROUNDING = 1e-14
# Share of the directions up to which reflections turn those that the data tell of in less time than a matrix product turns all.
FEW_TOLD = 0.3

# ----------------------------------------------------------------------------------------------------- exact process
# Targets up to which the exact Gaussian process is cheap (a second), and how many of them stand for more.
MOST_TARGETS, FEWER_TARGETS = 2000, 1000
# Rows of one kind times the kernel values that each needs (nodes of an integral): a covariance of a few seconds.
MOST_EVALUATIONS = 20_000
# Rows of each kind that the exact process is given at least, where there are several.
FEWEST_OF_A_KIND = 30
# Targets that the exact process is conditioned on to compare ridges: a small problem of the same kind.
SAMPLE_TARGETS = 300
# Prior variance of a target over its noise up to which the process is conditioned in the space of the targets, if they are fewer
# than the directions: there a posterior variance is a difference, of which this leaves six digits of the noise.
MOST_TOLD = 1e10
# Relative jitter of the norm of a mean at the guard points: what a network trained in float32 can satisfy.
MEAN_JITTER = 1e-4

# ----------------------------------------------------------------------------------------------------------- data and mode
# Arrays of data up to this many bytes are checked and converted once, larger ones in parts of this size at every pass.
HELD = 16 * 2**20
# Newton steps of the mode, and the decrement (relative to the objective) below which it has arrived: the mode is then right to
# the square root of it.
NEWTON_STEPS, NEWTON_TOLERANCE = 50, 1e-14
# Gauss-Newton steps for operators that are not linear, the gain (relative to the objective) below which they have arrived,
# and the smallest part of a step that is tried.
TANGENT_STEPS, TANGENT_TOLERANCE, SMALLEST_STEP = 30, 1e-7, 1e-3
# Factors of the noise's variance that the evidence is maximised over: from a hundredth to ten thousand times.
NOISE_FACTORS = (1e-2, 1e4)

# Factor of the noise, up or down, from which `fit_posterior` prefers the evidence of the network's features to the kernel's.
OTHER_NOISE = 1.1
# Rows held out to judge what the exact process cannot, being given 1,000 of many targets: 500 tell means and noises apart by
# hundredths of a nat, and a tenth of the rows is not missed in training.
MOST_HELD_OUT = 500
# Standard deviations of their difference from which two targets of one input, or a datum and what all others say of it,
# contradict each other: no chance, and no prior that is off by a factor of a few.
CONTRADICTION = 10.0
# All data are compared with each other if their noise is at most the first share of the prior's standard deviation: those that the
# others predict to within it, and miss by the second share at least. A function that is rougher than its prior can miss by more, and
# is then said to contradict it: |x| on [-1, 1] without noise under RBF(.5) misses by .03 at 30 points, by .16 at 20.
NEAR_ZERO_NOISE = DETERMINED = 0.05
NO_DETAIL = 0.1
# The most targets that are compared: a tenth of a second.
MOST_CONTRADICTING = 1000
# Rows that posteriors which are judged are made of, beside the one of all rows that is returned: a pass over a million rows takes minutes.
MOST_JUDGING = 10_000
# Rows held out ask for other noise in steps of a twentieth, up to five times more or less at once; a posterior is made with it at most
# so many times, the first with the noise as stated. What is asked for belongs to the mean and variance of the posterior before it.
MOST_NOISE_CHANGE, NOISE_CHANGES, NOISE_ROUNDS = 5.0, 33, 3
# Noise variance over the smallest from which a row says nothing.
UNTELLING = 1e8

# Share of the box of the context points by which later observations may lie outside without a word: other points of the same
# region do, as two draws of one sampler.
MARGIN = 0.05

# Rows of new data that go through one program, padded to a multiple of the first number, or of the second if there are no more
# rows than the first: fewer programs, and a network is fast on a few rows.
FEW_ROWS, ROWS_MULTIPLE, SMALL_MULTIPLE = 256, 16, 4
# Numbers of their Jacobian for each output: 32 MB of doubles.
LARGEST_FEW_ROWS = 2**22

# ----------------------------------------------------------------------------------------------------------- plan, printing
# What the compiled programs of one posterior take (measured on the CPU).
PROGRAM_BYTES = 80 * 2**20

# ----------------------------------------------------------------------------------------------------------------- verdict
# Missed prior variance over noise variance from which printing a posterior says so.
CAUTION = 5.0
# Loss of log predictive density, in nats for a new target, from which a posterior is cautioned about, and from which it is
# not to be used. The first is halfway (in ratio) between a good posterior's 0.02 and a bad one's 0.1; benchmarks/verdict.py
# measures how well it tells them apart.
CAUTION_LOSS, UNUSABLE_LOSS = 0.05, 0.5


class Limits(NamedTuple):
    """How far a posterior may be from the exact process at any single input.

    Attributes:
        factor: between the standard deviations of a new target.
        apart: of the means, in standard deviations of a new target.
        latent_factor: between the standard deviations of a latent function, which shows in labels and counts much less.
        latent_apart: of its means, in its standard deviations.
    """

    factor: float
    apart: float
    latent_factor: float
    latent_apart: float


# Beyond the first a posterior is cautioned about although its mean loss is small, beyond the second the verdict names the
# extremes. A mean that is one standard deviation away is as wrong there as a factor of 2.4.
CAUTION_EXTREMES = Limits(factor=1.5, apart=1.0, latent_factor=2.5, latent_apart=2.0)
NAMED_EXTREMES = Limits(factor=1.1, apart=0.3, latent_factor=1.2, latent_apart=0.5)
# Variance, in prior variances, from which that of a latent function is told apart from none.
LATENT_RESOLVED = 0.01
# Implied over stated prior variance within which the features hold the prior, for a judgement without an exact process.
HELD_RATIOS = (0.8, 1.25)
# Distance of a mean to the exact process's, in standard deviations of a new target, and share of training inputs outside the
# box of the context points, from which a posterior that is not good names them among the reasons.
FAR_MEAN, MOST_OUTSIDE = 0.2, 0.01
# Targets times outputs on which other likelihoods are compared with the exact process: a tenth of a second.
LATENT_TARGETS = 500
# Relative jitter of the exact process's Cholesky factor, and what a target must tell at least to count.
LATENT_JITTER = 1e-8
# Noise, in prior variances, with which functions are compared if nothing says what a new value is observed with.
LATENT_NOISE = 0.1
# Nodes of the quadrature of predicted labels: five digits for latent standard deviations up to 3.
QUADRATURE_NODES = 32
# Targets up to which an exact Gaussian process is named as an alternative: a minute on two cores.
EXACT_TARGETS = 5000


# How prior variance that the features miss is treated. "function": the data have told about it as much as about what the
# features carry there. "noise": it is unrelated between inputs, so that it adds to Gaussian noise and data tell nothing of it.
Treatment = Literal["function", "noise"]


class Options(NamedTuple):
    """What the caller of `laplace` may leave open; None where the room decides.

    Attributes:
        mean: "auto", "network" or "refined".
        rank: the most directions.
        rtol: relative size of directions that are dropped.
        delta: relative ridge of the pull-back.
        solver: "auto" or the name of a solver.
        passes: blocks of the matrix-free basis.
        missed_as_noise: whether prior variance that the features miss counts as Gaussian noise.
    """

    mean: str = "auto"
    rank: int | None = None
    rtol: float | None = None
    delta: float | None = None
    solver: str = "auto"
    passes: int = 3
    missed_as_noise: bool | None = None

    def ridges(self, dtype, *, solver: str, of_derivatives: bool) -> tuple[float, ...]:
        """Relative ridges to choose from, in rising order.

        Args:
            dtype: of the weights.
            solver: of the pull-back; only the dense one factors the Jacobian itself.
            of_derivatives: whether derivatives are observed.
        """
        if self.delta is not None:
            return (self.delta,)
        floors = SMALLEST_RIDGE
        if solver == "dense":
            floors = SMALLEST_RIDGE_OF_DERIVATIVES if of_derivatives else SMALLEST_RIDGE_OF_HELD
        smallest = floors[np.dtype(dtype).name]
        return tuple(10.0**exponent for exponent in range(smallest, LARGEST_RIDGE + 1))

    def num_small_ridges(self, dtype, *, solver: str, of_derivatives: bool) -> int:
        """How many of the `ridges` are for networks that hold the prior, or gain much; arguments as there."""
        if self.delta is not None or of_derivatives:
            return 0
        smallest = 10.0 ** SMALLEST_RIDGE[np.dtype(dtype).name]
        return sum(each < smallest for each in self.ridges(dtype, solver=solver, of_derivatives=of_derivatives))

    def treatments(self) -> tuple[Treatment, ...]:
        """Ways to treat missed variance to choose from."""
        if self.missed_as_noise is None:
            return ("function", "noise")
        return ("noise",) if self.missed_as_noise else ("function",)


class CutOff(NamedTuple):
    """How much of the prior a factor keeps.

    Attributes:
        rtol: directions whose eigenvalue is below `rtol` times the largest are dropped.
        captured: share of the prior variance that is enough.
    """

    rtol: float
    captured: float


def cut_off(options: Options, noises: Sequence[float], stated: np.ndarray) -> CutOff:
    """Directions that Gaussian noise would hide are dropped: together less than a hundredth of it at any point.

    Args:
        options: what the caller decided.
        noises: the smallest noise variance of each kind of observation, as noise of values: over what the operator
            multiplies the variance of the dropped directions by.
        stated: the prior variance at the context points, (m, q); the largest eigenvalue is at most its sum.
    """
    rtol, trace = options.rtol, float(np.sum(stated))
    if rtol is None and noises and trace > 0:
        hidden = DROPPED_SHARE_OF_NOISE * min(noises) / trace
        rtol = float(np.clip(hidden, SMALLEST_CUT, LARGEST_CUT))
    rtol = LARGEST_CUT if rtol is None else rtol
    return CutOff(rtol, 1 - min(MISSED_SHARE, rtol * stated.size))


def most_directions(rank: int | None, size: int, num_independent: int, solver: str, budget: float) -> int | None:
    """The most columns of the prior's factor: the caller's, or more than by default for many points and few weights.

    Args:
        rank: the caller's.
        size: rows of a block of the covariance.
        num_independent: independent outputs.
        solver: of the pull-back.
        budget: bytes.
    """
    if rank is not None or size <= LARGEST_DENSE or solver != "normal-equations":
        return rank
    # The factorisation holds three matrices of that many columns.
    fits = int(budget // (3 * 8 * size))
    return num_independent * max(1, min(fits, max(DEFAULT_COLUMNS, MOST_DIRECTIONS // num_independent)))


def default_rank(rank: int | None, context_rows: int, num_independent: int, *, convolutional: bool) -> int | None:
    """The caller's limit on the rank; without one, `IMAGE_COLUMNS` for each output of a network for images, if many rows."""
    return num_independent * IMAGE_COLUMNS if rank is None and convolutional and context_rows > LARGEST_DENSE else rank


def rounded_rank(rank: int, bytes_per_direction: float) -> int:
    """How many directions are stored for so many, the others being zero: at most a quarter more, or up to 16."""
    if rank * bytes_per_direction > LARGEST_PADDED:
        return rank
    multiple = max(RANK_MULTIPLE, 2 ** (max(rank, 1).bit_length() - 3))
    return -(-rank // multiple) * multiple


def num_training(num_points: int, num_outputs: int) -> int:
    """The most training inputs that join `num_points` context points."""
    rows = min(max(LARGEST_DENSE - num_points * num_outputs, FEWEST_TRAINING_ROWS), MOST_TRAINING_ROWS)
    return max(1, rows // num_outputs)


def num_targets(num_rows: int, num_outputs: int) -> int:
    """How many targets the exact process is given: all where that is cheap."""
    count = num_rows * num_outputs
    return count if count <= MOST_TARGETS else max(FEWER_TARGETS // num_outputs, 1) * num_outputs


def choose_solver(rows: int, num_params: int, number: int, solver: str, budget: float) -> str:
    """ "dense" if the N x p Jacobian fits the budget and its Gram matrix is small; "normal-equations" if the p x p
    matrix is; else "golub-kahan". `number` is the bytes of one weight."""
    needed = rows * num_params * (8 + number)
    if solver == "dense" and needed > budget:
        raise MemoryError(
            f"laplace: solver='dense' needs {format_bytes(needed)} for {rows} context rows and {num_params} weights, but "
            f"memory_budget is {format_bytes(budget)}; pass solver='golub-kahan'"
        )
    if solver != "auto":
        return solver
    if rows <= LARGEST_DENSE and needed <= budget:
        return "dense"
    small = num_params <= LARGEST_NORMAL and 2 * 8 * num_params**2 <= budget / 2
    return "normal-equations" if rows > LARGEST_DENSE and small else "golub-kahan"


def golub_kahan_passes(passes: int, rank: int, num_params: int, rows: int) -> int:
    """Blocks of the basis: no more than span all weights or context rows.

    The last block may reach beyond them: without it, 2,400 directions at 3,800 rows would have one block, which cannot reach the
    other 1,400 (200 outputs: standard deviations off by .032 of the prior's, by .003 with the second block).
    """
    return min(passes, -(-num_params // rank), -(-rows // rank))

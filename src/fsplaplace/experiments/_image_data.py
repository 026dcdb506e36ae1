"""Images to train on, to be asked about, and to enforce the prior at."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.ndimage import gaussian_filter

from fsplaplace import datasets
from fsplaplace.context import Data, Sampler, Uniform

# The images that a network trained on one set is asked to recognise as foreign.
OTHER = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
# KMNIST images that are never context: the prior's variance is chosen with half of them, the rest are for the tables.
_KEPT_BACK = 4000


class Images(NamedTuple):
    """The images of one seed.

    Attributes:
        X: to train on.
        y: their labels.
        X_valid: held out, a tenth of the source's training images.
        y_valid: their labels.
        X_test: the source's test images.
        y_test: their labels.
        X_other: test images of the other data set.
        kmnist: Kuzushiji characters that may be context.
        kmnist_valid: Kuzushiji characters that choices may look at.
        kmnist_test: Kuzushiji characters for the tables.
    """

    X: Float[np.ndarray, "n h w c"]
    y: Int[np.ndarray, " n"]
    X_valid: Float[np.ndarray, "v h w c"]
    y_valid: Int[np.ndarray, " v"]
    X_test: Float[np.ndarray, "t h w c"]
    y_test: Int[np.ndarray, " t"]
    X_other: Float[np.ndarray, "o h w c"]
    kmnist: Float[np.ndarray, "k h w c"]
    kmnist_valid: Float[np.ndarray, "l h w c"]
    kmnist_test: Float[np.ndarray, "m h w c"]


def load_images(name: str, seed: int, *, num_train: int | None = None, num_test: int | None = None) -> Images:
    """A random 90 % of the training images (or `num_train` of them), a tenth of those to validate on, and what is foreign.

    Args:
        name: "mnist" or "fashion_mnist".
        seed: of the split.
        num_train: training images; all by default.
        num_test: images of each test set, the first ones; all by default.
    """
    data, other, kmnist = datasets.load(name), datasets.load(OTHER[name]), datasets.load("kmnist")
    if data.X_test is None or data.y_test is None or other.X_test is None:
        raise ValueError(f"{name} has no test images; pass mnist or fashion_mnist")
    generator = np.random.default_rng(seed)
    order, characters = generator.permutation(len(data.X)), generator.permutation(len(kmnist.X))
    held = len(order) // 10
    train = order[held:][:num_train]
    valid = order[: held if num_train is None else max(100, len(train) // 9)]
    context, rest = characters[_KEPT_BACK:], characters[:_KEPT_BACK]
    return Images(
        data.X[train], data.y[train].astype(np.int32), data.X[valid], data.y[valid].astype(np.int32),
        data.X_test[:num_test], data.y_test[:num_test].astype(np.int32), other.X_test[:num_test],
        kmnist.X[context], kmnist.X[rest[: _KEPT_BACK // 2]][:num_test], kmnist.X[rest[_KEPT_BACK // 2 :]][:num_test],
    )  # fmt: skip


def context_of(name: str, images: Images, seed: int, *, num_corrupted: int) -> Sampler:
    """Where the prior is enforced in training: "KMNIST", "RND" (uniform in the widened box of the pixels) or "own" images."""
    if name == "KMNIST":
        return Data(images.kmnist)
    if name == "RND":
        low, high = images.X.min(axis=0), images.X.max(axis=0)
        reach = 0.5 * (high - low)
        return Uniform(low - reach, high + reach)
    return Data(corrupted(images.X, num_corrupted, np.random.default_rng(seed)))


def corrupted(
    images: Float[np.ndarray, "n h w c"], count: int, generator: np.random.Generator
) -> Float[np.ndarray, "k h w c"]:
    """Images that are none of the data's, made from the data and chance alone: no auxiliary images.

    A quarter each: squares of an image in another order; two images in one, through a smooth mask; smooth random fields of
    any scale, cut off at a random level; an image under such a field. Half of all with light and dark exchanged at times.
    """
    kinds = [_shuffled, _blended, _fields, _veiled]
    sizes = np.diff(np.linspace(0, count, len(kinds) + 1).astype(int))
    parts = [
        kind(images[generator.integers(0, len(images), size)], generator)
        for kind, size in zip(kinds, sizes, strict=True)
    ]
    made = np.concatenate(parts)
    inverted = generator.uniform(size=len(made)) < 0.15
    made[inverted] = 1 - made[inverted]
    return np.clip(generator.permutation(made), 0.0, 1.0).astype(images.dtype)


def _shuffled(images, generator):
    """Squares of 4, 7 or 14 pixels in another order."""
    made = images.copy()
    for image in made:
        side = int(generator.choice([4, 7, 14]))
        count = image.shape[0] // side
        used = count * side
        squares = image[:used, :used].reshape(count, side, count, side, -1).swapaxes(1, 2).reshape(-1, side, side, 1)
        mixed = generator.permutation(squares).reshape(count, count, side, side, -1).swapaxes(1, 2)
        image[:used, :used] = mixed.reshape(used, used, -1)
    return made


def _blended(images, generator):
    """Two images through a smooth mask, the second turned by a right angle or mirrored."""
    others = np.rot90(generator.permutation(images), int(generator.integers(1, 4)), axes=(1, 2))
    mask = _smooth(images.shape, generator) > 0
    return np.where(mask, images, others[:, ::-1])


def _fields(images, generator):
    """Smooth random fields, hard or soft at a random level."""
    fields = _smooth(images.shape, generator)
    level = generator.normal(size=(len(images), 1, 1, 1))
    sharpness = np.exp(generator.uniform(0.0, 3.0, (len(images), 1, 1, 1)))
    return 1 / (1 + np.exp(-sharpness * (fields - level)))


def _veiled(images, generator):
    """An image times or plus a smooth random field."""
    fields = _fields(images, generator)
    product = generator.uniform(size=(len(images), 1, 1, 1)) < 0.5
    return np.where(product, images * fields, np.maximum(images, fields))


def _smooth(shape: tuple[int, ...], generator: np.random.Generator) -> Float[np.ndarray, "n h w c"]:
    """Gaussian fields of unit variance, correlated over 0.5 to 8 pixels."""
    fields = generator.standard_normal(shape)
    scales = np.exp(generator.uniform(np.log(0.5), np.log(8.0), shape[0]))
    for field, scale in zip(fields, scales, strict=True):
        field[:] = gaussian_filter(field, (scale, scale, 0), mode="wrap")
        field /= field.std()
    return fields

"""A data set in memory."""

import equinox as eqx
import numpy as np
from jaxtyping import Num

from fsplaplace.arguments import checked
from fsplaplace.datasets import _readers
from fsplaplace.datasets._catalogue import entry
from fsplaplace.datasets._store import fetch


class Dataset(eqx.Module):
    """Inputs and targets in original units, nothing standardised; the arrays are read-only NumPy arrays.

    - `X`, `y`: tables are float64, (n, d) and (n,) or (n, q); images are float32 in [0, 1], (n, 28, 28, 1),
      with integer labels (n,). The training split where the source has one.
    - `X_test`, `y_test`: the source's own test split, or None.
    - `feature_names`: one per column of a table, empty for images.
    - `target_name`, `units`, `class_names`, `description`, `source`: what the numbers are and whence.
    - `note`: what a reader of results must know, such as a subset not comparable with published scores.
    """

    name: str = eqx.field(static=True)
    X: Num[np.ndarray, "n ..."]
    y: Num[np.ndarray, "n ..."]
    X_test: Num[np.ndarray, "m ..."] | None
    y_test: Num[np.ndarray, "m ..."] | None
    feature_names: tuple[str, ...] = eqx.field(static=True)
    target_name: str = eqx.field(static=True)
    class_names: tuple[str, ...] = eqx.field(static=True)
    units: str = eqx.field(static=True)
    description: str = eqx.field(static=True)
    note: str = eqx.field(static=True)
    source: str = eqx.field(static=True)


@checked(computes=False)
def load(name: str) -> Dataset:
    """Read a data set by name, from the mirror or a download.

    **Arguments:**

    - `name`: one of `names()`.

    **Returns:** a `Dataset`. MNIST takes about 220 MB and a second; every table less than 5 MB.
    """
    found = entry(name)
    train, test, feature_names = getattr(_readers, found.reader)(list(fetch(name).values()))
    for array in (*train, *(test or ())):
        array.flags.writeable = False
    return Dataset(
        name=name,
        X=train[0],
        y=train[1],
        X_test=test[0] if test else None,
        y_test=test[1] if test else None,
        feature_names=feature_names,
        target_name=found.target_name,
        class_names=found.class_names,
        units=found.units,
        description=found.description,
        note=found.note,
        source=found.source,
    )

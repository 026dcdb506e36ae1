"""Files to arrays, one function per format: `reader(paths) -> (X, y), test (X, y) or None, feature names`."""

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num, UInt8

from fsplaplace.datasets._store import import_extra

# Training and test rows differ in number, so that no axis has a name.
Split = tuple[Num[np.ndarray, "..."], Num[np.ndarray, "..."]]
Splits = tuple[Split, Split | None, tuple[str, ...]]

_UNSIGNED_BYTE = 0x08  # type code in an idx header


def table(paths: list[Path]) -> Splits:
    """A csv file with a header and the target in its last column."""
    (path,) = paths
    frame = _read_csv(path)
    *features, target = frame.columns
    return _columns(frame, features, target), None, tuple(features)


def co2(paths: list[Path]) -> Splits:
    """NOAA's monthly file: decimal year and monthly mean in ppm.

    A missing mean is written -9.99 or -99.99, depending on the file's age. Such months are left out: they are
    no measurements, and a mole fraction is positive. In the column `sdev` the same mark only says that no
    spread is given, so months with a mean stay.
    """
    (path,) = paths
    frame = _read_csv(path, comment="#")
    measured = frame[frame["average"] > 0]
    return _columns(measured, ["decimal date"], "average"), None, ("decimal date",)


def gulfdrifters(paths: list[Path]) -> Splits:
    """Longitude and latitude in degrees, velocities (n, 2)."""
    train, test = (_columns(_read_csv(path), ["lon", "lat"], ["ubar", "vbar"]) for path in paths)
    return train, test, ("lon", "lat")


def images(paths: list[Path]) -> Splits:
    """Pairs of image and label files in idx format: one split, or a training and a test split."""
    splits = [_image_split(*paths[i : i + 2]) for i in range(0, len(paths), 2)]
    return splits[0], splits[1] if len(splits) == 2 else None, ()


def _read_csv(path: Path, **options: Any) -> Any:
    # pandas' default parser may miss the nearest double by one unit in the last place.
    return import_extra("pandas").read_csv(path, float_precision="round_trip", **options)


def _columns(frame: Any, features: list[str], target: str | list[str]) -> Split:
    return frame[features].to_numpy(np.float64, copy=True), frame[target].to_numpy(np.float64, copy=True)


def _image_split(image_path: Path, label_path: Path) -> Split:
    pixels, labels = _read_idx(image_path), _read_idx(label_path)
    if pixels.shape[:1] != labels.shape:
        raise ValueError(f"{image_path} holds {pixels.shape[0]} images, but {label_path} {labels.shape[0]} labels")
    return pixels[..., None].astype(np.float32) / np.float32(255), labels.astype(np.int32)


def _read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Big-endian header (two zero bytes, type code, rank, lengths), then the bytes in C order."""
    with gzip.open(path) as stream:
        content = stream.read()
    zero, code, rank = struct.unpack_from(">HBB", content)
    if (zero, code) != (0, _UNSIGNED_BYTE):
        raise ValueError(f"{path} starts with {content[:4].hex()}, which is no idx file of unsigned bytes")
    shape = struct.unpack_from(f">{rank}I", content, offset=4)
    start = 4 + 4 * rank
    if len(content) != start + math.prod(shape):
        raise ValueError(f"{path} has {len(content)} bytes, but its header {shape} asks for {start + math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)

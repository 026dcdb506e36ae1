"""Images in result files: bytes, compressed, as text. As lists of numbers they were nine tenths of a file of a megabyte."""

import base64
import zlib

import numpy as np
from jaxtyping import Float, UInt8


def packed(images: Float[np.ndarray, "n h w"]) -> list[str]:
    """Each square image with pixels from 0 to 1, rounded to bytes."""
    pixels = np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)
    return [base64.b64encode(zlib.compress(image.tobytes(), 9)).decode("ascii") for image in pixels]


def unpacked(text: str) -> UInt8[np.ndarray, "h h"]:
    """The pixels of a square image, from 0 to 255."""
    pixels = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    side = round(pixels.size**0.5)
    return pixels.reshape(side, side)

"""The digits the models are trained and scored on: the split, the corruption, the IDX files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20
SIDE = 28
HELDOUT = 540  # originals, one corrupted image of each


@dataclass(frozen=True)
class Corruption:
    """Strengths; each image draws uniformly from the ranges."""

    cell: float = 2.9  # size in pixels of one of the original's 8x8 cells
    scale: float = 0.15  # +- part of the size
    rotation: float = 15.0  # +- degrees
    shift: float = 3.5  # +- pixels
    contrast: tuple[float, float] = (0.6, 1.0)
    base: float = 0.15  # background grey, 0..base
    box: tuple[int, int] = (4, 8)  # side of the occluding box, pixels
    noise: float = 0.11  # standard deviation


# Classes of input: the held-out originals once more in each, and no variant was trained on one of these.
INPUT_CLASSES: dict[str, Corruption] = {
    "clean": Corruption(box=(0, 0), noise=0.02),
    "noisy": Corruption(box=(0, 0), noise=0.2),
    "occluded": Corruption(box=(9, 12)),
}


def corrupt(originals: np.ndarray, seed: list[int], how: Corruption = Corruption()) -> np.ndarray:
    """One corrupted u8 image (N x 28 x 28) of each original (N x 8 x 8, 0..1)."""
    rng = np.random.default_rng(seed)
    n = len(originals)

    def draw(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (n, 1, 1)).astype(np.float32)

    # For every output pixel the point of the original under it, then bilinear sampling.
    angle = np.deg2rad(draw(-how.rotation, how.rotation))
    cell = how.cell * (1 + draw(-how.scale, how.scale))
    rows, cols = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2
    y, x = rows - draw(-how.shift, how.shift), cols - draw(-how.shift, how.shift)
    v = (np.cos(angle) * y - np.sin(angle) * x) / cell + 3.5
    u = (np.sin(angle) * y + np.cos(angle) * x) / cell + 3.5
    padded = np.pad(originals, ((0, 0), (1, 1), (1, 1))).astype(np.float32)
    v, u = np.clip(v + 1, 0, 8.999), np.clip(u + 1, 0, 8.999)
    i, j = v.astype(int), u.astype(int)
    fv, fu = v - i, u - j
    k = np.arange(n)[:, None, None]
    image = (1 - fv) * ((1 - fu) * padded[k, i, j] + fu * padded[k, i, j + 1])
    image += fv * ((1 - fu) * padded[k, i + 1, j] + fu * padded[k, i + 1, j + 1])

    image = draw(0, how.base) + draw(*how.contrast) * image
    side = rng.integers(how.box[0], how.box[1] + 1, (2, n, 1, 1))
    top, left = rng.integers(2, SIDE - 2 - side)
    r, c = np.arange(SIDE)[:, None], np.arange(SIDE)
    inside = (r >= top) & (r < top + side[0]) & (c >= left) & (c < left + side[1])
    image = np.where(inside, draw(0, 1), image)
    image += how.noise * rng.standard_normal(image.shape, dtype=np.float32)
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def split_originals(validate: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, then those to score on: originals, 8x8, 0..1, stratified.

    For validation the held-out originals are put aside and the training ones are split again.
    """
    digits = load_digits()
    images, labels = digits.images / 16, digits.target.astype(np.uint8)

    def split(images: np.ndarray, labels: np.ndarray, held: float) -> tuple:
        train_x, held_x, train_y, held_y = train_test_split(
            images, labels, test_size=held, stratify=labels, random_state=SEED
        )
        return train_x, train_y, held_x, held_y

    train_x, train_y, held_x, held_y = split(images, labels, HELDOUT)
    return split(train_x, train_y, 0.25) if validate else (train_x, train_y, held_x, held_y)


def write_idx(path: Path, data: np.ndarray) -> None:
    """The format of the MNIST files: zero, zero, 8 for u8, rank, big-endian sizes, bytes."""
    header = bytes([0, 0, 8, data.ndim]) + np.array(data.shape, ">u4").tobytes()
    path.write_bytes(header + data.astype(np.uint8).tobytes())

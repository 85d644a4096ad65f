"""Scenes that the detector is trained and scored on: a row of digits in a larger picture, with what is in the way."""

from dataclasses import dataclass

import numpy as np

from data import SIDE, Corruption

ROWS, COLUMNS = 48, 160
MOST = 6  # digits in a scene
BOX = SIDE / Corruption.cell  # side of a digit's box in cells: what a reader's picture holds


@dataclass(frozen=True)
class Composition:
    """Strengths; each scene draws uniformly from the ranges."""

    digits: tuple[float, ...] = (0.06, 0.12, 0.16, 0.20, 0.18, 0.15, 0.13)  # how often there are 0, 1 ... MOST
    cell: tuple[float, float] = (1.6, 2.4)  # size in pixels of one of the original's 8x8 cells
    scale: float = 0.07  # +- part of the size, of each digit
    pitch: tuple[float, float] = (8.6, 10.5)  # cells from one digit to the next
    rotation: float = 9.0  # +- degrees, of each digit
    slope: float = 0.06  # +- of the row
    shift: float = 0.6  # +- cells up or down, of each digit
    contrast: tuple[float, float] = (0.6, 1.0)
    base: float = 0.15  # background grey, 0..base
    gradient: float = 0.1  # +- from one end to the other
    clutter: int = 6  # lines, dots and patches, at most
    frame: float = 0.4  # share of scenes with a frame around the row
    noise: tuple[float, float] = (0.02, 0.10)  # standard deviation


@dataclass(frozen=True)
class Scenes:
    """Pictures (N x ROWS x COLUMNS, u8), and of each digit (N x MOST) where it is and which one."""

    images: np.ndarray
    digits: np.ndarray  # -1 where there is none
    places: np.ndarray  # N x MOST x 3: middle across, down, side of the box, in pixels


def draw(image: np.ndarray, original: np.ndarray, x: float, y: float, cell: float, angle: float) -> None:
    """Puts a digit (8x8, of its contrast) with its middle at (x, y) where it is brighter than what is there."""
    reach = int(np.ceil(cell * 6.5))
    top, left = max(int(y) - reach, 0), max(int(x) - reach, 0)
    bottom, right = min(int(y) + reach + 1, ROWS), min(int(x) + reach + 1, COLUMNS)
    rows, columns = np.mgrid[top:bottom, left:right].astype(np.float32) + 0.5
    rows, columns = rows - y, columns - x
    v = (np.cos(angle) * rows - np.sin(angle) * columns) / cell + 4.5
    u = (np.sin(angle) * rows + np.cos(angle) * columns) / cell + 4.5
    padded = np.pad(original, 1).astype(np.float32)
    v, u = np.clip(v, 0, 8.999), np.clip(u, 0, 8.999)
    i, j = v.astype(int), u.astype(int)
    fv, fu = v - i, u - j
    digit = (1 - fv) * ((1 - fu) * padded[i, j] + fu * padded[i, j + 1])
    digit += fv * ((1 - fu) * padded[i + 1, j] + fu * padded[i + 1, j + 1])
    part = image[top:bottom, left:right]
    np.maximum(part, digit, out=part)


def line(image: np.ndarray, rng: np.random.Generator, ends: np.ndarray) -> None:
    """A thin line between two points (x, y)."""
    (x0, y0), (x1, y1) = ends
    rows, columns = np.mgrid[:ROWS, :COLUMNS].astype(np.float32) + 0.5
    length = max(float(np.hypot(x1 - x0, y1 - y0)), 1e-3)
    along = np.clip(((columns - x0) * (x1 - x0) + (rows - y0) * (y1 - y0)) / length**2, 0, 1)
    away = np.hypot(columns - x0 - along * (x1 - x0), rows - y0 - along * (y1 - y0))
    strength, width = rng.uniform(0.2, 0.8), rng.uniform(0.5, 0.9)
    np.maximum(image, strength * np.clip(width + 0.5 - away, 0, 1), out=image)


def clutter(image: np.ndarray, rng: np.random.Generator) -> None:
    """A line, a dot or a grey patch somewhere."""
    kind = rng.integers(3)
    x, y = rng.uniform(0, COLUMNS), rng.uniform(0, ROWS)
    if kind == 0:
        angle, length = rng.uniform(0, np.pi), rng.uniform(8, 70)
        line(image, rng, np.array([[x, y], [x + length * np.cos(angle), y + length * np.sin(angle)]]))
    elif kind == 1:
        rows, columns = np.mgrid[:ROWS, :COLUMNS].astype(np.float32) + 0.5
        away, radius = np.hypot(columns - x, rows - y), rng.uniform(0.8, 2.2)
        np.maximum(image, rng.uniform(0.3, 0.9) * np.clip(radius + 0.5 - away, 0, 1), out=image)
    else:
        height, width = rng.integers(4, 24), rng.integers(4, 50)
        part = image[int(y) : int(y) + height, int(x) : int(x) + width]
        np.maximum(part, rng.uniform(0.05, 0.3), out=part)


def compose(originals: np.ndarray, labels: np.ndarray, count: int, seed: list[int],
            how: Composition = Composition()) -> Scenes:
    """Scenes of these originals (8x8, 0..1), each of which is used about as often."""
    rng = np.random.default_rng(seed)
    images = np.empty((count, ROWS, COLUMNS), np.uint8)
    digits, places = np.full((count, MOST), -1), np.zeros((count, MOST, 3))
    waiting: list[int] = []
    for scene in range(count):
        number = int(rng.choice(MOST + 1, p=how.digits))
        cell = rng.uniform(*how.cell)
        edge = BOX * cell * (1 + how.scale) / 2 + 0.5  # so that no box reaches beyond the picture
        pitch = cell * rng.uniform(*how.pitch)
        if number > 1:
            pitch = min(pitch, (COLUMNS - 2 * edge) / (number - 1))
        spare = COLUMNS - 2 * edge - pitch * max(number - 1, 0)
        # What is left goes before the row, behind it or, often, between the digits.
        shares = rng.dirichlet(np.ones(number + 1) if rng.random() < 0.5 else [1, *[0.02] * max(number - 1, 0), 1])
        xs = edge + spare * np.cumsum(shares)[:number] + pitch * np.arange(number)
        middle, slope = rng.uniform(edge, ROWS - edge), rng.uniform(-how.slope, how.slope)
        ys = middle + slope * (xs - COLUMNS / 2) + cell * rng.uniform(-how.shift, how.shift, number)
        ys = np.clip(ys, edge, ROWS - edge)

        image = np.zeros((ROWS, COLUMNS), np.float32)
        for _ in range(rng.integers(how.clutter + 1)):
            clutter(image, rng)
        if number and rng.random() < how.frame:
            low, high = ys.min() - rng.uniform(5.5, 8) * cell, ys.max() + rng.uniform(5.5, 8) * cell
            first, last = xs[0] - rng.uniform(5.5, 9) * cell, xs[-1] + rng.uniform(5.5, 9) * cell
            around = np.array([[first, low], [last, low], [last, high], [first, high], [first, low]])
            for at in range(4):
                line(image, rng, around[at : at + 2])
        contrast = rng.uniform(*how.contrast)
        for at in range(number):
            waiting = waiting or list(rng.permutation(len(originals)))
            chosen = waiting.pop()
            its_cell = cell * (1 + rng.uniform(-how.scale, how.scale))
            angle = np.deg2rad(rng.uniform(-how.rotation, how.rotation))
            draw(image, contrast * originals[chosen], xs[at], ys[at], its_cell, angle)
            digits[scene, at], places[scene, at] = labels[chosen], (xs[at], ys[at], BOX * its_cell)
        rows, columns = np.linspace(-0.5, 0.5, ROWS)[:, None], np.linspace(-0.5, 0.5, COLUMNS)
        down, across = rng.uniform(-how.gradient, how.gradient, 2)
        image = rng.uniform(0, how.base) + down * rows + across * columns + image
        image += rng.uniform(*how.noise) * rng.standard_normal(image.shape, dtype=np.float32)
        images[scene] = np.rint(np.clip(image, 0, 1) * 255)
    return Scenes(images, digits, places)


def corners(places: np.ndarray) -> np.ndarray:
    """Left, top, right, bottom of boxes given by their middle and side."""
    x, y, half = places[..., 0], places[..., 1], places[..., 2] / 2
    return np.stack([x - half, y - half, x + half, y + half], -1)


def crop(image: np.ndarray, box: np.ndarray, side: int = SIDE) -> np.ndarray:
    """A box (corners) of a picture, resized linearly, as the daemon's adapter does it."""
    rows, columns = image.shape
    left, top, right, bottom = np.clip(box, 0, [columns, rows, columns, rows]).astype(np.float32)
    if not (left < right and top < bottom):
        return np.zeros((side, side), np.float32)

    def taps(low: float, high: float, pixels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = low + (np.arange(side, dtype=np.float32) + 0.5) * (high - low) / side - 0.5
        at = np.clip(at, 0, pixels - 1)
        first = at.astype(int)
        return first, np.minimum(first + 1, pixels - 1), (at - first).astype(np.float32)

    (i, k, down), (j, m, across) = taps(top, bottom, rows), taps(left, right, columns)
    down = down[:, None]
    upper = image[i][:, j] + (image[i][:, m] - image[i][:, j]) * across
    lower = image[k][:, j] + (image[k][:, m] - image[k][:, j]) * across
    return upper + (lower - upper) * down

"""One set of colours: legible on its ground, and told apart by those who see fewer of them."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from repsynth import report
from repsynth.arrays import Floats

CSS = (Path(report.__file__).parent / "pages" / "style.css").read_text(encoding="utf-8")
LIGHT, DARK, PRINT = (
    dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root {[^}]*}", CSS)
)

# What is left of red, green and blue light (Machado, Oliveira and Fernandes 2009, severity 1).
EYES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def light(colour: str) -> Floats:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ light(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(seen: Floats) -> Floats:
    parts = TO_XYZ @ np.clip(seen, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colours", [LIGHT, DARK, LIGHT | PRINT], ids=["light", "dark", "print"])
def test_words_are_legible(colours: dict[str, str]) -> None:
    assert set(colours) == {"ink", "quiet", "line", "paper", "shade", "blue", "orange", "alarm"}
    for text, ground in product(("ink", "quiet", "blue", "orange", "alarm"), ("paper", "shade")):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("eyes", EYES)
def test_blue_and_orange_are_told_apart(eyes: str) -> None:
    """15 is several times the smallest visible difference; things of one hue also differ in shape."""
    for colours in (LIGHT, DARK):
        blue, orange = (lab(np.array(EYES[eyes]) @ light(colours[name])) for name in ("blue", "orange"))
        assert np.linalg.norm(blue - orange) > 15

"""One set of colours: legible on its ground, and told apart by those who see fewer of them."""

from itertools import combinations, product

import numpy as np
import pytest

from repsynth.arrays import Floats
from repsynth.evaluation.palette import BLUE, DARK, LIGHT, ORANGE, colours_of_page

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


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_are_legible(colours: dict[str, str]) -> None:
    for text, ground in product(("ink", "quiet", "blue", "orange", "alarm"), ("paper", "shade")):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize(
    "colours",
    [(BLUE, ORANGE), (DARK["blue"], DARK["orange"])],
    ids=["light", "dark"],
)
def test_colours_are_told_apart(eyes: str, colours: tuple[str, ...]) -> None:
    """15 is several times what can just be seen; two things of one hue also differ in shape."""
    seen = {colour: lab(np.array(EYES[eyes]) @ light(colour)) for colour in colours}
    near = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(colours, 2)}
    assert min(near.values()) > 15, min(near, key=near.__getitem__)


def test_a_page_has_all_of_them_in_both_lights() -> None:
    css = colours_of_page()
    assert LIGHT.keys() == DARK.keys()
    assert all(css.count(f"--{name}:") == 3 for name in LIGHT)

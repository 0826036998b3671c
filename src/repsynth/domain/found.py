"""What a column is, by what the two measurements showed of it: post-processing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import ndtri

from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import within_noise
from repsynth.curator.decide import PERSONAL
from repsynth.curator.decision import Decision
from repsynth.curator.look import percent, quoted, some
from repsynth.curator.sentinels import MARKERS, is_named, words_of
from repsynth.domain.kinds import BINS, Kind, edges_of, start_of
from repsynth.errors import has_controls
from repsynth.schema.columns import plain_number

ABOVE_NOISE = float(-ndtri(1e-3 / BINS))
"""Standard deviations from which on a bin is not taken for noise; in one column of a thousand it is noise."""

_HALF, _NEARLY_ALL = 0.5, 0.99
_LARGEST = 2.0**52


@dataclass(frozen=True)
class Shape:
    """Which kinds of cells a column has, about how many, and between which ends: what stands above the noise."""

    masses: Mapping[Kind, float]
    ends: Mapping[Kind, tuple[float, float]]

    @classmethod
    def of(cls, noisy: Floats, sigma: float) -> "Shape":
        """By the noisy bins of a column.

        >>> import numpy as np
        >>> noisy = np.zeros(BINS)
        >>> noisy[start_of(Kind.WHOLE) + 48 : start_of(Kind.WHOLE) + 50] = 900.0
        >>> Shape.of(noisy, sigma=10.0).ends[Kind.WHOLE]
        (5.0, 20.0)
        """
        masses, ends = {}, {}
        for kind in Kind:
            edges = edges_of(kind)
            counts = noisy[start_of(kind) : start_of(kind) + len(edges) - 1]
            inside = within_noise(counts, sigma, ABOVE_NOISE)
            if inside is not None:
                masses[kind] = max(float(counts[inside].sum()), 0.0)
                ends[kind] = (float(edges[inside.start]), float(edges[inside.stop]))
        return cls(masses, ends)

    def mass(self, *kinds: Kind) -> float:
        """About how many cells are of these kinds."""
        return sum(self.masses.get(kind, 0.0) for kind in kinds)

    @property
    def cells(self) -> float:
        """About how many cells were seen."""
        return self.mass(*Kind)

    @property
    def numbers(self) -> bool:
        """Whether numbers are most of what is there."""
        return self.mass(Kind.WHOLE, Kind.FRACTION) > max(self.mass(Kind.DAY, Kind.TIME), self.mass(Kind.TEXT))

    @property
    def times(self) -> bool:
        """Whether dates are most of what is there."""
        return not self.numbers and self.mass(Kind.DAY, Kind.TIME) > self.mass(Kind.TEXT)

    def between(self, *kinds: Kind) -> tuple[float, float]:
        """The outermost ends of some kinds that are there."""
        ends = [self.ends[kind] for kind in kinds if kind in self.ends]
        return min(low for low, _ in ends), max(high for _, high in ends)


def decide(name: str, shape: Shape, values: Mapping[str, int], *, is_label: bool) -> Decision:
    """What a column is: by its name, its shape, and those of its values that were frequent enough to be shown."""
    values = _told_apart(values, as_numbers=(shape.numbers or shape.times) and not is_label)
    if not shape.masses:
        return not_learned(name, "nothing stands above the noise")
    if is_label:
        return _category(name, shape, values, "the label")
    if shape.numbers and is_named(words_of(name), PERSONAL):
        return not_learned(name, "numbers, named like an identifier")
    if shape.numbers:
        return _number(name, shape, values)
    if shape.times:
        return _datetime(name, shape, values)
    return _category(name, shape, values, "texts")


def _told_apart(values: Mapping[str, int], *, as_numbers: bool) -> dict[str, int]:
    """Values that a schema can hold side by side: without blanks around them and, beside numbers, each number
    once."""
    found: dict[str, int] = {}
    first: dict[str | float, str] = {}
    for text, count in values.items():
        short = text.strip()
        number = plain_number(short) if as_numbers else None
        place = first.setdefault(short if number is None else number, short)
        if place and not has_controls(place):
            found[place] = found.get(place, 0) + count
    return found


def not_learned(name: str, why: str) -> Decision:
    """A column that is numbered anew."""
    return Decision(name, "id", why, ("not learned: the synthetic table will have 1, 2, 3, ... in its place",))


def _number(name: str, shape: Shape, values: Mapping[str, int]) -> Decision:
    low, high = shape.between(Kind.WHOLE, Kind.FRACTION)
    special, lines = _special(shape, values)
    if Kind.FRACTION in shape.masses:
        bounds = [f"min = {low!r}", f"max = {high!r}"]
        return Decision(name, "number", f"numbers{special}", (), (*bounds, *lines))
    last = max(min(math.ceil(high) - 1, int(_LARGEST)), int(low) + 1)
    return Decision(name, "integer", f"whole numbers{special}", (), (f"min = {int(low)}", f"max = {last}", *lines))


def _datetime(name: str, shape: Shape, values: Mapping[str, int]) -> Decision:
    first, after = (int(year) for year in shape.between(Kind.DAY, Kind.TIME))
    special, lines = _special(shape, values)
    start, end = ("T00:00:00", "T23:59:59") if Kind.TIME in shape.masses else ("", "")
    bounds = [f"min = {first}-01-01{start}", f"max = {after - 1}-12-31{end}"]
    return Decision(name, "datetime", f"{'times' if start else 'days'}{special}", (), (*bounds, *lines))


def _special(shape: Shape, values: Mapping[str, int]) -> tuple[str, list[str]]:
    """Texts among numbers or dates: codes that are kept, and marks of what is missing."""
    codes = [text for text in values if text.lower() not in MARKERS]
    unread = shape.mass(Kind.TEXT) - _sum(values, codes)
    absent = unread > _HALF * shape.mass(Kind.TEXT) or len(codes) < len(values)
    lines = [f"special = [{', '.join(map(quoted, codes))}]"] if codes else []
    lines += ["missing = true"] if Kind.EMPTY in shape.masses or (Kind.TEXT in shape.masses and absent) else []
    if not codes:
        return "", lines
    return f"; {some(len(codes), 'code')} among them in {percent(_sum(values, codes), shape.cells)}", lines


def _category(name: str, shape: Shape, values: Mapping[str, int], what: str) -> Decision:
    seen = shape.cells - shape.mass(Kind.EMPTY)
    shown = float(sum(values.values()))
    if what != "the label" and (not values or shown < _HALF * seen):
        return not_learned(name, "texts, most of them too rare to be shown: names, free text or many codes")
    if {text.lower() for text in values} == {"true", "false"}:
        return Decision(name, "boolean", "true or false", (), tuple(_missing(shape)))
    reason = f"{what}: {some(len(values), 'value')} in about {percent(min(shown, seen), seen)} of the cells"
    warnings: tuple[str, ...] = ()
    if shown < _NEARLY_ALL * seen:
        rarer = percent(1 - shown / seen)
        warnings = (f"about {rarer} of the cells have rarer values; they will count as missing",)
    lines = ["values = [", *(f"  {quoted(text)}," for text in values), "]"]
    rest = [] if what == "the label" else _missing(shape, rare=bool(warnings))
    return Decision(name, "category", reason, warnings, (*lines, *rest))


def _missing(shape: Shape, *, rare: bool = False) -> list[str]:
    return ["missing = true"] if rare or Kind.EMPTY in shape.masses else []


def _sum(values: Mapping[str, int], texts: list[str]) -> float:
    return float(sum(values[text] for text in texts))

"""Real against synthetic: each column, and the pairs of columns that depend on each other most. PRIVATE."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.evaluation.associations import Associations
from repsynth.evaluation.distances import Grid
from repsynth.evaluation.inputs import Inputs
from repsynth.release.expected import value_name
from repsynth.report.charts import Chart, dots, heat
from repsynth.schema import Discrete, Numeric

CELLS = 12
"""Values and ranges of a column that are told apart; what is rarer is taken together."""

FEW_CELLS = 6
"""The same in a table of two columns."""

PAIRS = 8
"""Pairs of columns that are drawn."""

_OWN = 0.1  # a number that this fraction of the records has is a range of its own


@dataclass(frozen=True)
class Cells:
    """The values and ranges of a column by name, and which of them each record has."""

    names: tuple[str, ...]
    real: Ints
    synthetic: Ints

    @classmethod
    def of(cls, column: Discrete | Numeric, real: Records, synthetic: Records, most: int = CELLS) -> "Cells":
        """At most so many; those that no record has are left out."""
        codes = [records.codes[column.name] for records in (real, synthetic)]
        names, (a, b) = (
            _numbers(column, codes, most) if isinstance(column, Numeric) else _values(column, codes, most)
        )
        there = np.flatnonzero(np.bincount(np.concatenate([a, b]), minlength=len(names)))
        place = np.zeros(len(names), dtype=np.int64)
        place[there] = np.arange(len(there))
        return cls(tuple(names[i] for i in there), place[a], place[b])

    def fractions(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Of the real and of the synthetic records; the real ones may be weighted."""
        size = len(self.names)
        real = np.bincount(self.real, weights, minlength=size)
        return real / max(real.sum(), 1e-300), np.bincount(self.synthetic, minlength=size) / len(self.synthetic)


def _values(column: Discrete, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """The most frequent values, all others together, and missing."""
    counts = np.bincount(codes[0][codes[0] != MISSING], minlength=column.size)
    shown = np.argsort(-counts, kind="stable")[: most - 1 if column.size > most else most]
    place = np.full(column.size + 1, len(shown), dtype=np.int64)
    place[shown] = np.arange(len(shown))
    place[-1] = len(shown) + 1  # what MISSING picks
    others = "all others" if column.size > most else ""
    return [*(column.values[i] for i in shown), others, "missing"], [place[each] for each in codes]


def _numbers(column: Numeric, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """Frequent numbers alone, the others in ranges that hold about as many real records each; then special codes
    and missing."""
    numbers = codes[0][(codes[0] != MISSING) & (codes[0] <= column.steps)]
    values, counts = np.unique(numbers, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: most // 3]
    own = np.sort(values[frequent[counts[frequent] >= _OWN * len(codes[0])]])
    rest = numbers[~np.isin(numbers, own)]
    ranges = most - len(own)
    levels = np.arange(1, ranges) / ranges
    ends = np.unique(np.quantile(rest, levels, method="inverted_cdf")).astype(np.int64) if len(rest) else own[:0]
    grid = Grid(column.steps, own, ends)
    # The grid's cells are missing, own values, ranges and special codes. Here they go by where they begin.
    starts = [-1, *own.tolist(), *(e + 1 for e in [-1, *ends.tolist()])]
    last = [*ends.tolist(), column.steps]
    names = ["missing", *(value_name(column, position) for position in own.tolist())]
    alone = set(own.tolist())
    names += [_range(column, first, end, alone) for first, end in zip(starts[1 + len(own) :], last, strict=True)]
    order = [
        *(1 + np.argsort(np.array(starts[1:]), kind="stable")),
        *range(len(names), len(names) + len(column.special)),
        0,
    ]
    place = np.empty(len(order), dtype=np.int64)
    place[np.array(order)] = np.arange(len(order))
    names += column.special
    return [names[i] for i in order], [place[grid.of(each)] for each in codes]


def _range(column: Numeric, first: int, last: int, alone: set[int]) -> str:
    """From where to where; numbers that stand alone are not part of it."""
    while first < last and first in alone:
        first += 1
    while first < last and last in alone:
        last -= 1
    one, other = value_name(column, first), value_name(column, last)
    return one if first == last else f"{one} to {other}"


def columns_side_by_side(inputs: Inputs, distances: dict[str, float]) -> list[Chart]:
    """A chart for each column, the farthest first."""
    order = sorted(inputs.schema.learned, key=lambda column: -distances[column.name])
    return [_column(column, inputs, distances[column.name]) for column in order]


def _column(column: Discrete | Numeric, inputs: Inputs, distance: float) -> Chart:
    cells = Cells.of(column, inputs.train, inputs.synthetic)
    real, made = cells.fractions()
    chance = 1.96 * np.sqrt(real * (1 - real) * (1 / len(cells.real) + 1 / len(cells.synthetic)))
    worst = int(np.argmax(np.abs(real - made)))
    return dots(
        column.name,
        f"{distance:.1%} of the rows would have to change. Farthest: {cells.names[worst]}, {real[worst]:.1%} of "
        f"the real and {made[worst]:.1%} of the synthetic rows.",
        ("value or range", "real", "synthetic"),
        [(n, f"{r:.2%}", f"{m:.2%}") for n, r, m in zip(cells.names, real, made, strict=True)],
        names=cells.names,
        values=real.tolist(),
        others=made.tolist(),
        called=("real", "synthetic"),
        low=(real - chance).tolist(),
        high=(real + chance).tolist(),
        axis="part of the rows; grey: what chance alone explains",
    )


def pairs_side_by_side(
    inputs: Inputs, associations: dict[str, Associations], distances: dict[str, float]
) -> list[Chart]:
    """The pairs of columns that depend on each other most in the real table."""
    if not associations:
        return []
    real, made = associations["real"].pairs(), associations["synthetic"].pairs()
    known = {pair: value for pair, value in real.items() if not np.isnan(value)}
    strongest = sorted(known, key=lambda pair: -abs(known[pair]))[:PAIRS]
    columns = {column.name: column for column in inputs.schema.learned}
    return [_pair(columns[a], columns[b], inputs, (real[a, b], made[a, b]), distances) for a, b in strongest]


def _pair(
    one: Discrete | Numeric,
    two: Discrete | Numeric,
    inputs: Inputs,
    association: tuple[float, float],
    distances: dict[str, float],
) -> Chart:
    up, across = (Cells.of(column, inputs.train, inputs.synthetic, FEW_CELLS) for column in (one, two))
    real, made = (
        _crossed(a, b, len(up.names), len(across.names))
        for a, b in ((up.real, across.real), (up.synthetic, across.synthetic))
    )
    distance = distances.get(f"{one.name} × {two.name}", distances.get(f"{two.name} × {one.name}", float("nan")))
    kept = "cannot be told" if np.isnan(association[1]) else f"{association[1]:.2f}"
    return heat(
        f"{one.name} × {two.name}",
        f"Association {association[0]:.2f} in the real table, {kept} in the synthetic one; {distance:.1%} of the "
        "rows would have to change. Darker: more rows.",
        ("values", "real", "synthetic"),
        [
            (f"{a} and {b}", f"{real[i, j]:.2%}", f"{made[i, j]:.2%}")
            for i, a in enumerate(up.names)
            for j, b in enumerate(across.names)
        ],
        across=across.names,
        up=up.names,
        panels=[("real", real.tolist()), ("synthetic", made.tolist())],
    )


def _crossed(one: Ints, two: Ints, rows: int, columns: int) -> Floats:
    counts = np.bincount(one * columns + two, minlength=rows * columns).reshape(rows, columns)
    return np.asarray(counts / max(len(one), 1))

"""Draw real against synthetic: each column, and the most associated pairs of columns. PRIVATE."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.evaluation.fidelity import Grid
from repsynth.evaluation.inputs import Inputs
from repsynth.release.accuracy import value_name
from repsynth.report.charts import Chart, dots, heat
from repsynth.schema import Discrete, Numeric

CELLS = 12  # values and ranges of a column; rarer values are merged
FEW_CELLS = 6  # the same in a table of two columns
PAIRS = 8
_OWN = 0.1  # a number that this fraction of the records has gets its own cell


@dataclass(frozen=True)
class Cells:
    """The names of the values and ranges of a column, and the cell of each record."""

    names: tuple[str, ...]
    real: Ints
    synthetic: Ints

    @classmethod
    def of(cls, column: Discrete | Numeric, real: Records, synthetic: Records, most: int = CELLS) -> "Cells":
        codes = [records.codes[column.name] for records in (real, synthetic)]
        names, (a, b) = (
            _numbers(column, codes, most) if isinstance(column, Numeric) else _values(column, codes, most)
        )
        there = np.flatnonzero(np.bincount(np.concatenate([a, b]), minlength=len(names)))
        place = np.zeros(len(names), dtype=np.int64)
        place[there] = np.arange(len(there))
        return cls(tuple(names[i] for i in there), place[a], place[b])

    def fractions(self) -> tuple[Floats, Floats]:
        """Return the fractions of the real and of the synthetic records in each cell."""
        size = len(self.names)
        real, made = (np.bincount(cells, minlength=size) / len(cells) for cells in (self.real, self.synthetic))
        return real, made

    def moved(self, weights: Floats) -> float:
        """Return the total variation distance of the weighted from the unweighted real records."""
        if not weights.any():
            return 1.0
        weighted = np.bincount(self.real, weights, minlength=len(self.names)) / weights.sum()
        return float(np.abs(weighted - self.fractions()[0]).sum() / 2)


def _values(column: Discrete, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """Return cells for the most frequent values, for all others, and for missing."""
    counts = np.bincount(codes[0][codes[0] != MISSING], minlength=column.size)
    shown = np.argsort(-counts, kind="stable")[: most - 1 if column.size > most else most]
    place = np.full(column.size + 1, len(shown), dtype=np.int64)
    place[shown] = np.arange(len(shown))
    place[-1] = len(shown) + 1  # what MISSING picks
    others = "all others" if column.size > most else ""
    return [*(column.values[i] for i in shown), others, "missing"], [place[each] for each in codes]


def _numbers(column: Numeric, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """Return cells for frequent numbers, ranges of equally many real records, special codes and missing."""
    numbers = codes[0][(codes[0] != MISSING) & (codes[0] <= column.steps)]
    values, counts = np.unique(numbers, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: most // 3]
    own = np.sort(values[frequent[counts[frequent] >= _OWN * len(codes[0])]])
    rest = numbers[~np.isin(numbers, own)]
    ranges = most - len(own)
    levels = np.arange(1, ranges) / ranges
    ends = np.unique(np.quantile(rest, levels, method="inverted_cdf")).astype(np.int64) if len(rest) else own[:0]
    grid = Grid(column.steps, own, ends)
    # The cells of the grid are missing, own values, ranges and special codes; order them by their start.
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
    """Name a range without the numbers at its ends that have their own cell."""
    while first < last and first in alone:
        first += 1
    while first < last and last in alone:
        last -= 1
    one, other = value_name(column, first), value_name(column, last)
    return one if first == last else f"{one} to {other}"


def columns_side_by_side(inputs: Inputs, distances: dict[str, float]) -> list[Chart]:
    """Draw each column, the one with the largest distance first."""
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
    inputs: Inputs, associations: dict[str, dict[str, float]], distances: dict[str, float]
) -> list[Chart]:
    """Draw the pairs of columns with the strongest association in the real table."""
    pairs = {f"{a.name} × {b.name}": (a, b) for a, b in combinations(inputs.schema.learned, 2)}
    known = {name: value for name, value in associations["real"].items() if not np.isnan(value)}
    strongest = sorted(known, key=lambda name: -abs(known[name]))[:PAIRS]
    return [
        _pair(name, *pairs[name], inputs, (known[name], associations["synthetic"][name]), distances[name])
        for name in strongest
    ]


def _pair(
    name: str,
    one: Discrete | Numeric,
    two: Discrete | Numeric,
    inputs: Inputs,
    association: tuple[float, float],
    distance: float,
) -> Chart:
    up, across = (Cells.of(column, inputs.train, inputs.synthetic, FEW_CELLS) for column in (one, two))
    real, made = (
        _crossed(a, b, len(up.names), len(across.names))
        for a, b in ((up.real, across.real), (up.synthetic, across.synthetic))
    )
    kept = "cannot be told" if np.isnan(association[1]) else f"{association[1]:.2f}"
    return heat(
        name,
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

"""From groups to values: which codes of a column the records of a group have."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.groups import Groups, probabilities_within
from repsynth.columns.quotas import Levels, Line, Quotas
from repsynth.data.records import MISSING, Records
from repsynth.data.values import usual
from repsynth.schema import Numeric


@dataclass(frozen=True)
class Shape:
    """The codes of one column, by row: how often each cell is drawn in a row, and which codes are in the cells."""

    bins: Bins
    probabilities: Floats  # (rows, cells), missing last
    first: Ints
    width: Ints

    @classmethod
    def of(cls, bins: Bins, within: Floats) -> "Shape":
        """Make the codes from (rows, cells): how the records of a row are spread over a column's cells."""
        if bins.starts is None:
            first, width = np.arange(bins.values), np.ones(bins.values, dtype=np.int64)
        else:
            first, width = bins.starts, np.ones(bins.values, dtype=np.int64)
            width[: bins.numbers] = bins.widths
        return cls(bins, within, np.append(first, MISSING), np.append(width, 1))

    @property
    def rows(self) -> int:
        return len(self.probabilities)

    @cached_property
    def alone(self) -> Ints | None:
        """The code of each row, where every row has but one."""
        possible = self.probabilities > 0
        cell = np.argmax(possible, axis=1)
        single = bool((possible.sum(axis=1) == 1).all()) and bool((self.width[cell] == 1).all())
        return self.first[cell] if single else None

    @cached_property
    def _quotas(self) -> Quotas:
        return Quotas.of(self.probabilities)

    def along(self, line: Line, generator: np.random.Generator) -> Ints:
        return self._codes(self._quotas.along(line, generator), generator.random(len(line.records)))

    def codes(self, row: Ints, level: Levels, inside: Floats) -> Ints:
        """Return a code for each record: of a cell of its row by its level, so far `inside` of it, from 0 to 1."""
        return self._codes(self._quotas.at(row, level), inside)

    def _codes(self, cell: Ints, inside: Floats) -> Ints:
        found = self.first.take(cell)
        if not isinstance(self.bins.column, Numeric):
            return found
        width = self.width.take(cell)
        found += np.minimum((inside * width).astype(np.int64), width - 1)
        return usual(found, self.bins.column)


def shapes_of(histograms: Histograms, all_groups: tuple[Groups, ...]) -> tuple[Shape, ...]:
    """Return for each column which codes the records of a group have."""
    return tuple(
        Shape.of(groups.bins, probabilities_within(histograms, i, groups)) for i, groups in enumerate(all_groups)
    )


def values_of(
    drawn: Ints, shapes: tuple[Shape, ...], label_at: int | None, generator: np.random.Generator
) -> Records:
    """Return values for groups, (records, columns); they do not follow the label."""
    label = None if label_at is None else drawn[:, label_at]
    codes = {}
    for i, shape in enumerate(shapes):
        name = shape.bins.column.name
        if shape.alone is not None:
            codes[name] = shape.alone.take(drawn[:, i])
            continue
        line = Line.of(drawn[:, i], shape.rows, generator, None if i == label_at else label)
        codes[name] = line.put(shape.along(line, generator))
    return Records(rows=len(drawn), codes=codes)

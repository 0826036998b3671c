"""From groups to values: which codes of a column the records of a group have.

A bin's codes are drawn from runs of them: all of its positions, or the multiples of a power of ten among them that
are multiples of no larger one, as often as the column's numbers are that round. Everything about a run is read off
a table, so that a code takes a few operations on whole arrays.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.positions import exact_grid, positions_of, usual
from repsynth.data.records import MISSING, Records
from repsynth.models.groups import Groups, probabilities_within
from repsynth.models.sampling import Levels, Line, Quotas
from repsynth.schema import Discrete, Integer, Number
from repsynth.scoring.bins import Bins
from repsynth.scoring.grain import Run
from repsynth.scoring.histograms import Histograms


@dataclass(frozen=True)
class Shape:
    """The codes of one column, by row: how often each run of codes is drawn in a row, and what is in the runs."""

    bins: Bins
    probabilities: Floats  # (rows, runs)
    first: Ints
    count: Ints
    low: Ints
    high: Ints
    power: Floats
    skips: Ints

    @classmethod
    def of(cls, histograms: Histograms, i: int, within: Floats) -> "Shape":
        """From (rows, bins): how the records of a row are spread over a column's bins, the missing one last."""
        bins = histograms.bins[i]
        if bins.starts is None:
            runs = [Run.one(k, code) for k, code in enumerate(range(bins.values))]
        else:
            special = enumerate(bins.starts[bins.numbers :].tolist(), start=bins.numbers)
            runs = [*histograms.runs(i), *(Run.one(k, code) for k, code in special)]
        runs.append(Run.one(bins.values, MISSING))
        of_bin, fraction, *whole, power, skips = (np.array(field) for field in zip(*runs, strict=True))
        first, count, low, high = (field.astype(np.int64) for field in whole)
        probabilities = within[:, of_bin] * fraction
        return cls(bins, probabilities, first, count, low, high, power.astype(np.float64), skips.astype(np.int64))

    @property
    def rows(self) -> int:
        return len(self.probabilities)

    @cached_property
    def alone(self) -> Ints | None:
        """The code of each row, where every row has but one."""
        possible = self.probabilities > 0
        run = np.argmax(possible, axis=1)
        single = bool((possible.sum(axis=1) == 1).all()) and bool((self.count[run] == 1).all())
        return self.first[run] if single else None

    @cached_property
    def _quotas(self) -> Quotas:
        return Quotas.of(self.probabilities)

    def along(self, line: Line, generator: np.random.Generator) -> Ints:
        return self._codes(self._quotas.along(line, generator), generator.random(len(line.records)))

    def codes(self, row: Ints, level: Levels, inside: Floats) -> Ints:
        """A code for each record: of a run of its row by its level, so far `inside` of the run, from 0 to 1."""
        return self._codes(self._quotas.at(row, level), inside)

    def _codes(self, run: Ints, inside: Floats) -> Ints:
        found = self.first.take(run)
        if isinstance(self.bins.column, Discrete):
            return found
        found += (inside * self._many.take(run)).astype(np.int64)
        if self.power.any():
            power = self.power.take(run)
            found = np.where(power > 0, self._multiples(found, run, power), found)
        np.clip(found, self.low.take(run), self.high.take(run), out=found)
        return usual(found, self.bins.column)

    @cached_property
    def _many(self) -> Floats:
        return self.count.astype(np.float64)

    def _multiples(self, number: Ints, run: Ints, power: Floats) -> Ints:
        """The position of a multiple of a power by its number: among all or, where a run skips those of the next
        power, among the others."""
        if self.skips.any():
            number = number + (number // 9 + 1) * self.skips.take(run)
        if self._grid is None:
            column = self.bins.column
            assert isinstance(column, Number)
            if column.on_grid:
                return positions_of(number * power, column)
            exact = (number * power - column.min) * (column.steps / (column.max - column.min))
            return np.clip(exact, 0, column.steps).astype(np.int64)  # runs without a power may be far outside
        start, step, scale = self._grid
        position = number * np.rint(self.power * scale).astype(np.int64).take(run) - start
        return position if step == 1 else (position + step // 2) // step

    @cached_property
    def _grid(self) -> tuple[int, int, float] | None:
        """The column's grid in whole numbers, as `exact_grid` has it; None where there is none."""
        column = self.bins.column
        if isinstance(column, Integer):
            return column.min, column.step, 1.0
        return exact_grid(column) if isinstance(column, Number) and column.on_grid else None


def shapes_of(histograms: Histograms, all_groups: tuple[Groups, ...]) -> tuple[Shape, ...]:
    """For each column, which codes the records of a group have."""
    return tuple(
        Shape.of(histograms, i, probabilities_within(histograms, i, groups)) for i, groups in enumerate(all_groups)
    )


def values_of(
    drawn: Ints, shapes: tuple[Shape, ...], label_at: int | None, generator: np.random.Generator
) -> Records:
    """From groups, (records, columns), to values; they do not follow the label."""
    label = None if label_at is None else drawn[:, label_at]
    codes = {}
    for i, shape in enumerate(shapes):
        name = shape.bins.column.name
        if shape.alone is not None:
            codes[name] = shape.alone.take(drawn[:, i])
            continue
        line = Line.of(drawn[:, i], shape.rows, generator, None if i == label_at else label)
        found = shape.along(line, generator)
        codes[name] = line.put(found)
    return Records(rows=len(drawn), codes=codes)

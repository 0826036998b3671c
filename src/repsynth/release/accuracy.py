"""Standard errors of a release, computed from the release alone.

The noise of the first histograms is known, so the intervals of shares have their stated coverage. Means come from
bins, whose width is a further error. Errors of stage 2 are lower bounds: weights and clipping add to them.
"""

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.cells import Bins
from repsynth.io.records import Records
from repsynth.io.values import values_at
from repsynth.models.uncertainty import ModelErrors
from repsynth.privacy.events import GaussianEvent
from repsynth.privacy.unit import row_meaning
from repsynth.schema import Datetime, Integer, Number, Numeric
from repsynth.scoring.stage import COUNT

if TYPE_CHECKING:
    from repsynth.release.release import Release

Z = 1.959964
"""Standard errors on each side of a 95 % interval."""

_CLEAR = 5.0
"""A mean is given if the count is at least this many times its noise."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The released share of each bin of a column, between 0 and 1, and its standard error."""

    column: str
    bins: tuple[str, ...]
    shares: tuple[float, ...]
    standard_errors: tuple[float, ...]

    @property
    def standard_error(self) -> float:
        return max(self.standard_errors)


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a numeric column, clipped to its bounds.

    `standard_error` is due to the noise; `binning` is the largest error due to the bins. With `by`, the mean is
    over the records with this value, and its standard error is a lower bound.
    """

    column: str
    mean: float
    standard_error: float
    binning: float
    by: str = ""
    lower_bound: bool = False
    interval_95: tuple[float, float] | None = None
    """A 95 % interval of the real mean. None without `by`, or if the model measures no tables."""


class TableAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """A table that stage 2 measured: the mean standard error of its cells, as a share of the records."""

    columns: tuple[str, ...]
    measurement: str
    cells: int
    standard_error: float
    share: float
    """The mean share of a cell, for comparison."""
    lower_bound: bool


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    rows: float
    rows_standard_error: float
    columns: tuple[Shares, ...]
    means: tuple[Mean, ...]
    group_means: tuple[Mean, ...]
    tables: tuple[TableAccuracy, ...]
    notes: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """Return plain data with the largest error of each column's shares, for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        del found["rows"], found["columns"]
        return found | {"shares": {each.column: {"standard_error": each.standard_error} for each in self.columns}}

    def covered(self, release: "Release", records: Records) -> dict[str, float]:
        """Return the fraction of each column's bins whose share of these records is in the 95 % interval.

        With `[person]`, a row has the same factor as in the release. The result is PRIVATE.
        """
        found, counts = {}, None if records.whose is None else records.whose.factors.astype(np.float64)
        whole = records.rows if counts is None else counts.sum()
        histograms = release.stage.coarse
        for i, (bins, shares) in enumerate(zip(histograms.bins, self.columns, strict=True)):
            true = np.bincount(bins.of(records), counts, minlength=bins.count) / max(whole, 1)
            error = np.abs(true - histograms.noisy(i) / histograms.rows)  # not clipped: that would hide noise
            found[shares.column] = float(np.mean(error <= Z * np.array(shares.standard_errors)))
        return found


def expected_errors(release: "Release") -> Expected:
    """Return the standard errors of a release.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> expected = expected_errors(synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6))
    >>> expected.columns[-1].column, 0 < expected.columns[-1].standard_error < 0.02
    ('label', True)
    """
    histograms = release.stage.coarse
    rows_error = _rows_error(release)
    columns = []
    for i, bins in enumerate(histograms.bins):
        shares = histograms.noisy(i) / histograms.rows
        errors = np.hypot(histograms.sigma, shares * rows_error) / histograms.rows
        clipped = tuple(np.clip(shares, 0.0, 1.0).tolist())
        columns.append(
            Shares(
                column=bins.column.name,
                bins=bin_names(bins),
                shares=clipped,
                standard_errors=tuple(errors.tolist()),
            )
        )
    means = [_mean(bins, histograms.noisy(i), histograms.sigma) for i, bins in enumerate(histograms.bins)]
    model: ModelErrors = getattr(release.fit, "errors", ModelErrors)()  # optional part of a fit
    return Expected(
        rows=release.rows,
        rows_standard_error=rows_error,
        columns=tuple(columns),
        means=tuple(mean for mean in means if mean is not None),
        group_means=tuple(_group_means(model, release)),
        tables=tuple(
            TableAccuracy(
                columns=table.columns,
                measurement=table.measurement,
                cells=int(table.fractions.size),
                standard_error=float(table.errors.mean()),
                share=1 / int(table.fractions.size),
                lower_bound=table.clipped or release.stage.weighted,
            )
            for table in model.tables
        ),
        notes=tuple(_notes(model, release)),
    )


def _rows_error(release: "Release") -> float:
    if release.plan.public_rows is not None:
        return 0.0
    sigmas = [event.sigma for event in release.events if event.name == COUNT and isinstance(event, GaussianEvent)]
    return sigmas[0] if sigmas else 0.0


def _mean(bins: Bins, counts: Floats, sigma: float) -> Mean | None:
    column = bins.column
    if not isinstance(column, Numeric) or isinstance(column, Datetime) or bins.starts is None:
        return None
    numbers = counts[: bins.numbers]
    whole = float(numbers.sum())
    if whole < _CLEAR * sigma * math.sqrt(len(numbers)):
        return None
    middle = column.min + (bins.starts[: bins.numbers] + bins.ends - 1) / 2 * column.unit
    mean = float(numbers @ middle) / whole
    half = (bins.widths - 1) / 2 * column.unit
    return Mean(
        column=column.name,
        mean=_inside(column, mean),
        standard_error=sigma * float(np.sqrt(np.sum((middle - mean) ** 2))) / whole,
        binning=float(np.maximum(numbers, 0.0) @ half) / whole,
    )


def _group_means(model: ModelErrors, release: "Release") -> list[Mean]:
    columns = {column.name: column for column in release.schema.learned}
    found = []
    for means in model.means:
        column = columns[means.column]
        if isinstance(column, Datetime) or not isinstance(column, Numeric):
            continue
        bounds = np.array(means.ends or np.full((2, len(means.values)), np.nan)).T
        for value, mean, error, ends in zip(
            means.values, means.means.tolist(), means.errors.tolist(), bounds.tolist(), strict=True
        ):
            low, high = (
                column.min + (end + margin) * column.unit
                for end, margin in zip(ends, (-Z * error, Z * error), strict=True)
            )
            found.append(
                Mean(
                    column=column.name,
                    mean=_inside(column, column.min + mean * column.unit),
                    standard_error=error * column.unit,
                    binning=0.0,
                    by=f"{means.by} = {value}",
                    lower_bound=True,
                    interval_95=None if math.isnan(low + high) else (_inside(column, low), _inside(column, high)),
                )
            )
    return found


def _inside(column: Integer | Number, value: float) -> float:
    return min(max(value, column.min), column.max)


def _notes(model: ModelErrors, release: "Release") -> list[str]:
    notes = [
        f"A synthetic row represents {row_meaning(release.schema)}. Shares and means are of such rows.",
        "Shares of one column are those of the released histograms: the interval share ± 1.96 standard errors "
        "holds the real share 95 times in 100. The synthetic table follows them after smoothing, which mostly "
        "lowers the error, and moves small shares.",
    ]
    if any(table.clipped for table in model.tables) or release.stage.weighted:
        notes.append(
            "Errors of the model's tables, and of means by label, are those of the noise alone. They are lower "
            "bounds: weights, clipping and groups add to them. They are not intervals of the real value."
        )
    if any(means.ends for means in model.means):
        notes.append(
            "The interval of a mean by label allows for the largest effect of weights and clipping on its table, "
            "and for the width of the groups. It holds at least 95 times in 100 and may be wide."
        )
    if not model.tables:
        notes.append(
            f"The model {release.plan.model.name} does not measure tables, so the error of two-way tables does "
            "not follow from its noise. repsynth evaluate with the training table shows it, privately."
        )
    return notes


def bin_names(bins: Bins) -> tuple[str, ...]:
    """Return a name for each bin: its value, its range, or "missing".

    >>> from repsynth.schema import Integer
    >>> bin_names(Bins.at(Integer(name="age", min=18, max=99, special=("?",)), np.array([1, 40])))
    ('18', '19 to 57', '58 to 99', '?', 'missing')
    """
    column = bins.column
    if not isinstance(column, Numeric):
        return (*column.values, "missing")
    assert bins.starts is not None
    first, last = bins.starts[: bins.numbers], bins.ends - 1
    ends = [
        (value_name(column, a), value_name(column, b)) for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
    return (*(a if a == b else f"{a} to {b}" for a, b in ends), *column.special, "missing")


def value_name(column: Numeric, position: int) -> str:
    """Return the value at a position of a numeric column, as text."""
    if isinstance(column, Datetime):
        when = column.start + position * timedelta(seconds=column.unit.total_seconds())
        return str(when.date()) if column.unit == timedelta(days=1) else str(when)
    value: Any = values_at(np.array([position]), column)[0]
    return f"{value:g}" if isinstance(value, float) else str(value)

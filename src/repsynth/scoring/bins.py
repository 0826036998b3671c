"""Public bins of each column: its declared values or intervals between its bounds, and one for missing."""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.schema import Discrete, Numeric, Schema

_FEWEST_BINS, _MOST_BINS = 4, 64


@dataclass(frozen=True)
class Bins:
    """The bins of one column; the last one counts the missing.

    `starts` holds the first position of each bin of a numeric column and is None for a discrete one.
    """

    column: Discrete | Numeric
    starts: Ints | None
    count: int

    @classmethod
    def discrete(cls, column: Discrete) -> "Bins":
        """One bin per declared value."""
        return cls(column, None, column.size + 1)

    @classmethod
    def binned(cls, column: Numeric, bins: int, *, both: bool = False) -> "Bins":
        """About `bins` equal bins, and one for the lower bound alone: zeros are often a case apart.

        Up to twice as many whole numbers get a bin each, since some are far more frequent than others, such as a
        40-hour week. With `both`, the upper bound has a bin of its own, too.

        >>> from repsynth.schema import Integer
        >>> Bins.binned(Integer(name="gain", min=0, max=99), bins=4).starts.tolist()
        [0, 1, 25, 50, 75]
        >>> Bins.binned(Integer(name="rate", min=1, max=4), bins=16).starts.tolist()
        [0, 1, 2, 3]
        """
        if column.steps < 2 * bins:
            bins = column.steps + 1
        uniform = -(-np.arange(bins) * (column.steps + 1) // bins)
        starts = np.unique(np.concatenate([uniform, [0, 1], [column.steps] if both else []]).astype(np.int64))
        starts = starts[starts <= column.steps].astype(np.int64)
        return cls(column, starts, len(starts) + 1)

    @property
    def values(self) -> int:
        """How many bins there are without the one for missing."""
        return self.count - 1

    def of(self, records: Records) -> Ints:
        """The bin of each record."""
        codes = records.codes[self.column.name]
        if self.starts is None:
            return np.where(codes == MISSING, self.count - 1, codes)
        found = np.searchsorted(self.starts, codes, side="right") - 1
        return np.where(codes == MISSING, self.count - 1, found)

    def edges(self) -> Floats:
        """The bins' ends in units of the whole range, from 0 to 1; numeric columns only."""
        assert self.starts is not None
        assert isinstance(self.column, Numeric)
        return np.append(self.starts, self.column.steps + 1) / (self.column.steps + 1)


def choose_bins(schema: Schema, *, rows: float, sigma: float, fine: bool = False) -> tuple[Bins, ...]:
    """Bins for every learned column: the less noise per record there is, the finer the bins.

    The number of bins is the power of two near rows/σ up to 16, and grows beyond only eight times as
    slowly: finer bins than the noise can fill make every estimate worse. A marginal model takes `fine`
    bins, near a quarter of rows/σ and eight at least: it merges those that noise drowns itself.

    >>> from repsynth.schema import Number
    >>> schema = Schema(columns=(Number(name="pay", min=0.0, max=1e6),))
    >>> [choose_bins(schema, rows=rows, sigma=100.0)[0].values for rows in (500, 5_000, 500_000)]
    [5, 17, 65]
    """
    signal = max(rows / sigma, 1.0)
    most = np.clip(_power_of_two(signal / 8), 16, _MOST_BINS)
    bins = int(np.clip(_power_of_two(signal), _FEWEST_BINS, most))
    if fine:
        bins = int(np.clip(_power_of_two(signal / 4), 2 * _FEWEST_BINS, _MOST_BINS))
    return tuple(
        Bins.discrete(column) if isinstance(column, Discrete) else Bins.binned(column, bins, both=fine)
        for column in schema.learned
    )


def _power_of_two(value: float) -> float:
    return float(2.0 ** np.round(np.log2(max(value, 1.0))))

"""How much a record stands out: a public function of one record, made from the released histograms.

    s(z) = Σ over columns of −log(max(count of z's cell, σ/2) / rows)
         + ¼ Σ over numeric columns of min(|z-score|, 6)²

A cell cannot look rarer than half the noise: with a fixed floor instead, a cell that noise happens to
empty would send ordinary records over any threshold. The second term sees extremes inside a wide bin.
Scores are integers in units of 2⁻¹⁶ nats, made of table look-ups and IEEE products, so they do not
depend on how the records are batched.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsynth.cells import Cells
from repsynth.encode import MISSING, Records
from repsynth.marginals import Marginals
from repsynth.schema import Numeric

Ints = NDArray[np.int64]

NAT = 2**16
"""Score units in one nat."""

_EXTREMES = 0.25
_FARTHEST = 6.0


@dataclass(frozen=True)
class Score:
    """The released score function of the features (the label does not count).

    `rarity` holds, column by column, the score of each cell; `centre` and `scale` standardise the
    numeric columns, in positions.
    """

    cells: tuple[Cells, ...]
    rarity: tuple[Ints, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    def of(self, records: Records) -> Ints:
        """The score of each record."""
        score = np.zeros(records.rows, dtype=np.int64)
        for cells, rarity, centre, scale in zip(
            self.cells, self.rarity, self.centre, self.scale, strict=True
        ):
            score += rarity[cells.of(records)]
            if cells.starts is not None:
                z = standardise(records.codes[cells.column.name], centre, scale, _FARTHEST)
                score += np.floor(z * z * (_EXTREMES * NAT)).astype(np.int64)
        return score

    @property
    def lowest(self) -> int:
        """The smallest score that any record can have is no smaller than this."""
        return int(sum(int(rarity.min()) for rarity in self.rarity))


def make_score(marginals: Marginals, label: str | None) -> Score:
    """The score function from the released histograms: post-processing."""
    kept = [i for i, cells in enumerate(marginals.cells) if cells.column.name != label]
    rarity, centres, scales = [], [], []
    for i in kept:
        counts = np.maximum(marginals.noisy(i), marginals.sigma / 2)
        rarity.append(np.floor(-np.log(counts / marginals.rows) * NAT).astype(np.int64))
        centre, scale = standardisation(marginals, i)
        centres.append(centre)
        scales.append(scale)
    cells = tuple(marginals.cells[i] for i in kept)
    return Score(cells, tuple(rarity), tuple(centres), tuple(scales))


def standardisation(marginals: Marginals, column: int) -> tuple[float, float]:
    """Centre and scale of a numeric column in positions; (0, 1) for a discrete one."""
    domain = marginals.cells[column].column
    if not isinstance(domain, Numeric):
        return 0.0, 1.0
    centre, scale = marginals.centre_and_scale(column)
    return centre * (domain.steps + 1) - 0.5, scale * (domain.steps + 1)


def standardise(positions: Ints, centre: float, scale: float, farthest: float) -> NDArray[np.float64]:
    """Clipped z-scores; 0 where the value is missing."""
    z = np.clip((positions - centre) / scale, -farthest, farthest)
    return np.where(positions == MISSING, 0.0, z)

"""The guaranteed loss in small cases whose chances are known: the bounds hold, and are nearly reached.

A bound with twice as much room as it needs hides most faults. Here its chance of failure is worked out, or counted
in so many draws that no other one fits, and must lie just below the chance that it was given.
"""

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.special import ndtr

from repsynth.arrays import Floats
from repsynth.columns.cells import Bins
from repsynth.curator import guarantee
from repsynth.curator.guarantee import _Reaching, guaranteed_weights
from repsynth.io.records import Records
from repsynth.mechanism.kernels import Count
from repsynth.schema import Boolean, Schema
from repsynth.scoring.base import NAT
from repsynth.scoring.rarity import STEP, PartBounds, SumTails
from repsynth.scoring.threshold import MOST_BINS, _read
from repsynth.scoring.weights import FULL, WeightFunction

SMOKER = Boolean(name="smoker")
ONE = Records(rows=1, codes={"smoker": np.zeros(1, dtype=np.int64)})


# The threshold: the numbers of records are known, their noise is not.


def histogram(*, inside: int, beyond: int = 0, below: int = 0, at: int = 1) -> Floats:
    """As many bins as there can be: records are in the bin at a place, before the first edge, or in the last."""
    true = np.zeros(MOST_BINS)
    true[[0, at, -1]] = below, inside, beyond
    return true


def reaching(true: Floats, *most: float) -> _Reaching:
    """What is certain of the numbers at or above every edge."""
    number = np.append(np.cumsum(true[::-1])[::-1][1:], np.zeros(4))[None]
    return _Reaching(np.arange(float(number.size)), int(true.sum()), number, np.zeros_like(number), *most)


def exceeds(true: Floats, bound: float, *, fraction: float, sigma: float, rows: float | None) -> float:
    """How often a threshold that is read off the noisy histogram lies above the bound: of 20,000 draws."""
    edges = np.arange(len(true) - 1) * NAT
    noise = np.rint(np.random.default_rng(1).normal(0, sigma, (20_000, len(true))))
    found = [
        _read(edges, each, fraction=fraction, rows=each.sum() if rows is None else rows, sigma=sigma)[0]
        for each in true + noise
    ]
    return float(np.mean(np.array(found) / NAT > bound))


def most(chance: float) -> float:
    """More than this, a frequency in 20,000 draws is with a chance of less than 1e-7."""
    return chance + 5.5 * math.sqrt(chance / 20_000)


ROWS = 1_000_000


@pytest.mark.parametrize("chance", [0.4, 0.02])
@pytest.mark.parametrize(
    ("true", "fraction", "public"),
    [
        (histogram(inside=ROWS), 0.6, True),
        (histogram(inside=ROWS // 2, below=ROWS // 2), 0.3, True),
        (histogram(inside=ROWS // 2, below=ROWS // 2), 0.3, False),
        (histogram(inside=ROWS, at=MOST_BINS - 3), 0.6, False),
    ],
    ids=["public", "few above, public", "few above", "many above"],
)
def test_the_threshold_lies_above_its_bound_nearly_as_often_as_it_may(
    true: Floats, fraction: float, public: bool, chance: float
) -> None:
    """Half of the chance is for the noise, of as many bins as there are. Fixed by the seed."""
    rows = ROWS if public else None
    bound = reaching(true).highest(chance, fraction=fraction, sigma=3000.0, rows=rows)
    often = exceeds(true, bound, fraction=fraction, sigma=3000.0, rows=rows)
    assert 0.6 * chance / 2 < often < most(chance / 2)


@pytest.mark.parametrize(("beyond", "chance"), [(0.22, 0.02), (0.25, 0.02), (0.282, 0.4)])
def test_whichever_edge_above_is_reached_it_counts(beyond: float, chance: float) -> None:
    """As many records lie at or above each edge: the largest of 46 noisy numbers decides, which is above a level
    about twice as often as any one of them."""
    last = int(beyond * ROWS)
    true = histogram(inside=ROWS - last, beyond=last)
    bound = reaching(true).highest(chance, fraction=0.3, sigma=3000.0, rows=ROWS)
    assert exceeds(true, bound, fraction=0.3, sigma=3000.0, rows=ROWS) < most(chance / 2)


def test_noise_that_rounding_makes_larger_is_allowed_for() -> None:
    """Of noise of 0.4 records, what is left after rounding has a third more variance."""
    true = histogram(inside=1000)
    bound = reaching(true).highest(0.02, fraction=0.3, sigma=0.4, rows=1000)
    assert exceeds(true, bound, fraction=0.3, sigma=0.4, rows=1000) < most(0.01)
    without = 0.7 + 2.33 * 0.4 * math.sqrt(MOST_BINS) / 1000
    assert exceeds(true, without, fraction=0.3, sigma=0.4, rows=1000) > most(0.01)


def test_several_histograms_have_the_noise_of_all_their_bins() -> None:
    true = histogram(inside=ROWS)
    together = _Reaching.together([reaching(true / 4) for _ in range(4)])
    assert (together.records, together.histograms) == (ROWS, 4)
    bound = together.highest(0.1, fraction=0.6, sigma=1500.0, rows=ROWS)
    assert 0.03 < exceeds(true, bound, fraction=0.6, sigma=3000.0, rows=ROWS) < most(0.05)


# How many records reach a level: those of one cell do so together.


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.013])
@pytest.mark.parametrize("each", [0.9, 0.2, 0.05, 0.012, 1e-3, 1e-6])
def test_more_records_than_said_reach_a_level_no_more_often_than_they_may(each: float, chance: float) -> None:
    """Forty records reach it together, or none does: just below the chance, hardly fewer may be said."""

    class Together:
        def exceed(self, records: Records, levels: Floats) -> Floats:
            return np.full((records.rows, len(levels)), each)

    records = Records(rows=40, codes={})
    (found,) = guarantee._count([records], [np.zeros(40, dtype=np.int64)], 1, Together(), np.zeros(1), 1.0)  # type: ignore[arg-type]
    assert found.records == 40
    (number,) = found.at_most(chance)
    assert number == pytest.approx(min(40.0, 40 * each / chance))
    assert (each if number < 40 else 0.0) <= chance


def test_numbers_of_records_are_bounded_for_each_group_over_all_batches() -> None:
    chances = np.array([[0.9, 0.4], [0.2, 0.0], [0.05, 0.01]])

    class Some:
        def exceed(self, records: Records, levels: Floats) -> Floats:
            return chances[records.codes["who"]]

    batches = [Records(rows=len(who), codes={"who": np.array(who)}) for who in ([0, 1, 2, 2], [2, 0])]
    groups = [np.array([0, 0, 1, 0]), np.array([1, 1])]
    one, other = guarantee._count(batches, groups, 2, Some(), np.arange(2.0), 1.0)  # type: ignore[arg-type]
    assert (one.records, other.records) == (3, 3)
    # Those that reach a level with more than a tenth are counted, the expected number of the others is doubled.
    assert one.at_most(0.5) == pytest.approx([2 + 0.05 / 0.5, 0.41 / 0.5])
    assert other.at_most(0.5) == pytest.approx([1 + 0.1 / 0.5, 0.42 / 0.5])


# The chance is shared out: all that may fail together has no more than the whole.


def test_what_may_fail_has_the_whole_chance_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = mock.Mock(side_effect=reaching(histogram(inside=ROWS - ROWS // 5, beyond=ROWS // 5)).at_most)
    monkeypatch.setattr(_Reaching, "at_most", lambda self, chance: asked(chance))
    noise = mock.Mock(side_effect=guarantee.ndtri)
    monkeypatch.setattr(guarantee, "ndtri", noise)
    true = histogram(inside=ROWS - ROWS // 5, beyond=ROWS // 5)
    reaching(true).highest(0.02, fraction=0.3, sigma=3000.0, rows=ROWS)
    others = float(ndtr((ROWS // 5 - (0.3 * ROWS - MOST_BINS / 2)) / (3000.0 * math.sqrt(MOST_BINS))))
    # Four numbers of records, the noise of one of them, and that of all edges above.
    spent = 4 * asked.call_args.args[0] + noise.call_args.args[0] + MOST_BINS * others
    assert 0.02 * (1 - 1e-9) - 3 * others < spent <= 0.02


@pytest.mark.parametrize(("records", "found"), [(10, 9.0), (500, 9.0), (900, 9.0), (1100, 9.0), (1600, 7.0)])
def test_a_label_s_number_its_own_threshold_and_the_common_one_share_the_chance(
    records: int, found: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label has a threshold of its own from 1,000 records on here; noise decides between some 550 and 1,450.
    Where it does, the higher one counts. The common one has its 45 % already."""
    own = mock.Mock(return_value=7.0)
    monkeypatch.setattr(_Reaching, "highest", lambda self, chance, **_: own(chance))
    noise = mock.Mock(side_effect=guarantee.ndtri)
    monkeypatch.setattr(guarantee, "ndtri", noise)
    label = reaching(histogram(inside=records))
    assert guarantee._own_or_common(label, 9.0, 0.02, fraction=0.3, sigma=20.0) == found
    assert 0.45 * 0.02 + own.call_args.args[0] + noise.call_args.args[0] <= 0.02
    assert guarantee._own_or_common(label, 5.0, 0.02, fraction=0.3, sigma=20.0) == (5.0 if records <= 500 else 7.0)


# Scores: a column's part is all but certain, so that Chernoff's bound is reached.


def part(*points: tuple[float, float], first: float = 0.0) -> PartBounds:
    """What adds each of these points (on the grid, rising) with such a chance; the rest is below the grid."""
    grid = first + np.arange(math.ceil(points[-1][0] / STEP) + 2) * STEP
    below = np.full(len(grid), 1 - math.fsum(chance for _, chance in points))
    for point, chance in points:
        below[grid > first + point + STEP / 2] += chance
    above = 1 - np.where(np.arange(len(grid)) == len(grid) - 1, 1.0, below)
    return PartBounds(Bins.discrete(SMOKER), np.zeros(3, dtype=np.int64), grid, below[None], above[None])


def exceed(tails: SumTails, level: float) -> float:
    return float(tails.exceed(ONE, np.array([level]))[0, 0])


def lower(tails: SumTails, chance: float) -> float:
    return float(tails.lower(ONE, chance)[0])


def test_a_sum_reaches_a_level_as_often_as_its_parts_do_together() -> None:
    columns = tuple(part((0.0, 0.5), (60.0, 0.5)) for _ in range(3))
    assert 0.5 <= exceed(SumTails(columns[:1]), 60.0) < 0.51
    assert 1 / 8 <= exceed(SumTails(columns), 180.0) < 0.13


def test_a_score_falls_below_its_bound_no_more_often_than_it_may() -> None:
    """Of two columns one is certain; the other is 0 with a chance of ¼, else 60."""
    tails = SumTails((part((60.0, 1.0)), part((0.0, 0.25), (60.0, 0.75))))
    assert lower(tails, 0.2499) < 60.0
    assert 60.0 < lower(tails, 0.26) < 60.2
    assert 59.98 < lower(tails, 0.01) < 60.0


def test_what_lies_below_the_grid_is_a_failure() -> None:
    """Of one column nothing is known with a chance of 0.1: a bound that fails less often there is none."""
    tails = SumTails((part((60.0, 0.9)), part((60.0, 1.0))))
    assert lower(tails, 0.0999) == -math.inf
    assert 119.9 < lower(tails, 0.1001) <= 120.0


def test_what_is_certain_is_bounded_in_spite_of_rounding() -> None:
    """Every part of a score is rounded down to a unit: eight times nine tenths of one are more than seven."""
    off = 0.9 / NAT
    tails = SumTails(tuple(part((2.0, 1.0), first=off) for _ in range(8)))
    rounded = 8 * math.floor((2.0 + off) * NAT) / NAT
    for chance in (0.9999999, 0.5, 1e-9):
        assert lower(tails, chance) < rounded
    assert lower(tails, 0.9999999) > rounded - 10 / NAT


# The whole: a record's score and the threshold of its label share the chance.


def test_score_and_threshold_share_the_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the weight is that of the released table at the lowest score above the highest threshold."""
    weights = WeightFunction(start=5 * NAT, table=np.arange(FULL, 0, -64))
    tails = mock.Mock()
    tails.lower.return_value = np.array([3.0, 7.5 + 1 / 128, 9.0])
    release: Any = mock.Mock(weights=weights, schema=Schema(one_row_per_person=True, columns=(SMOKER,)))
    release.stage = mock.Mock(spec=["borrowed", "coarse"], borrowed=None)
    release.score.tails.return_value = tails
    highest = mock.Mock(return_value=np.array([6.0, 7.0, 7.0]))
    monkeypatch.setattr(guarantee, "_highest_thresholds", highest)
    monkeypatch.setattr(guarantee, "why_none", lambda release: None)
    monkeypatch.setattr(guarantee, "replace", lambda coarse, counts: coarse)
    monkeypatch.setattr(guarantee, "ColumnHistograms", lambda bins: Count())
    found = guaranteed_weights(release, [Records(rows=3, codes={})], eta=1e-3)
    assert np.all(tails.lower.call_args.args[1] + highest.call_args.args[4] == 1e-3)
    assert highest.call_args.args[5].tolist() == [1, 1, 1]
    # Steps of 1/64 nat, each of 64 units of weight: 32 whole ones within half a nat, and 63 at the most.
    assert found.tolist() == [1.0, (FULL - 32 * 64) / FULL, (FULL - 63 * 64) / FULL]

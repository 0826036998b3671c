"""Look up the score, weight and ε of given values, from the release alone.

`calculator` gives the released tables to the public page, where `pages/own_bound.js` does what `own_bound` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.arrays import Ints
from repsynth.columns.cells import Bins
from repsynth.errors import ConfigError
from repsynth.io.encode import encode_batch
from repsynth.io.records import MISSING, UNITS, factors_of
from repsynth.io.values import EPOCH, Notation, date_format, exact_grid, numbers_of, special_values
from repsynth.privacy.loss import weight_grid
from repsynth.release.release import Release
from repsynth.schema import Boolean, Datetime, Discrete, Integer, Number, Numeric, Schema
from repsynth.schema.columns import plain_number
from repsynth.scoring.base import NAT, Score
from repsynth.scoring.pairwise import PairwiseScore
from repsynth.scoring.rarity import SPAN, RandomScore, RarityScore
from repsynth.scoring.threshold import ShiftedScore
from repsynth.scoring.weights import FULL, STEP

_PERSON_STEP = 4  # of FULL: how far the weights of persons are apart in the page's table


@dataclass(frozen=True)
class OwnBound:
    """The score in nats (of several rows the lowest), the weight, and the largest loss of somebody.

    `unknown` names the columns whose value was needed but not given, or not readable: such rows have weight 1.
    """

    score: float
    weight: float
    epsilon: float
    unknown: tuple[str, ...] = ()


def own_bound(release: Release, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> OwnBound:
    """Return the bound for somebody with these values, written as they would stand in the table.

    With `[person]`, give all rows of the person: a bound for some of them may be too small. A value that is left
    out is missing, if the schema allows that. The bound holds whether or not they were in the data, in the joint
    form of docs/privacy.md: over all releases that give them at most this weight.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes")
    >>> own_bound(release, {"x1": "5.9", "x2": "-5.9", "c1": "Z", "label": "1"}).epsilon <= 1.0
    True
    """
    rows = [values] if isinstance(values, Mapping) else list(values)
    if not rows or (len(rows) > 1 and release.schema.person is None):
        raise ConfigError("give one row: the schema of this release has no [person]" if rows else "give a row")
    others = {name for row in rows for name in row} - {column.name for column in release.schema.learned}
    if others:
        raise ConfigError(f"the release has no column '{min(others)}' that is learned; leave it out")
    texts = {
        column.name: pa.array(
            [None if (v := row.get(column.name)) is None else str(v) for row in rows], type=pa.large_string()
        )
        for column in release.schema.learned
    }
    records = encode_batch(pa.record_batch(texts), release.schema)
    missing = {column.name for column in release.schema.learned if column.missing}
    unknown = {
        name: np.array([v is not None or name not in missing for v in texts[name].to_pylist()])
        & (codes == MISSING)
        for name, codes in records.codes.items()
    }
    scores = release.score.of(records)
    weights = np.where(np.any(list(unknown.values()), axis=0), FULL, release.weights.of(scores))
    weight = _together(weights, release.schema) / FULL
    return OwnBound(
        float(scores.min()) / NAT,
        weight,
        float(release.privacy.epsilon_at(weight)),
        tuple(name for name, rows_without in unknown.items() if rows_without.any()),
    )


def _together(weights: Ints, schema: Schema) -> float:
    """Return the weight of a person: the sum over their rows as they count, over the most that a person counts."""
    if schema.person is None:
        return float(weights[0])
    factor = int(factors_of(np.array([len(weights)]), schema.person.rows)[0])
    return factor * int(weights.sum()) / (UNITS * schema.person.rows)


def calculator(release: Release) -> dict[str, Any]:
    """Return all that the page needs to do the same. Public, as the whole release."""
    weights, person = release.weights, release.schema.person
    distinct = np.unique(np.append(weights.table, FULL))
    if person is not None:  # the weight of a person lies anywhere between those of rows
        distinct = np.union1d(distinct, np.arange(0, FULL + 1, _PERSON_STEP))
    at = distinct / FULL if person is None else weight_grid(FULL)[distinct]
    epsilons = release.privacy.epsilon_at(at)
    return {
        "columns": [_column(column) for column in release.schema.learned],
        "score": _score(release.score),
        "nat": NAT,
        "full": FULL,
        "weights": {"start": weights.start, "step": STEP, "table": weights.table.tolist()},
        "epsilons": {str(w): float(e) for w, e in zip(distinct.tolist(), epsilons.tolist(), strict=True)},
        "threshold": None if release.threshold is None else release.threshold.value,
        "person": person and {"rows": person.rows, "units": UNITS, "weights": distinct.tolist()},
    }


def _column(column: Discrete | Numeric) -> dict[str, Any]:
    """Return how the page reads a text as a code."""
    found: dict[str, Any]
    if isinstance(column, Boolean):
        return {"name": column.name, "kind": "flag", "values": ["false", "true"], "missing": column.missing}
    if isinstance(column, Discrete):
        numbers = numbers_of(column.values) or []
        found = {"name": column.name, "kind": "choice", "values": list(column.values), "missing": column.missing}
        return found | {"numbers": numbers if any(number is not None for number in numbers) else []}
    found = {
        "name": column.name,
        "steps": column.steps,
        "missing": column.missing,
        "special": [
            {"text": text, "value": value, "number": plain_number(text)}
            for text, value in zip(column.special, special_values(column), strict=True)
        ],
    }
    match column:
        case Datetime():
            start = int((column.start - EPOCH).total_seconds())
            unit = int(column.unit.total_seconds())
            found |= {"kind": "time", "start": start, "unit": unit, "min": str(column.min), "max": str(column.max)}
            form = date_format(column)
            numbered = bool(form and form.is_number)
            found |= {"dates": column.dates, "pattern": _pattern(column), "numbered": numbered}
        case Integer():
            found |= {"kind": "whole", "min": column.min, "max": column.max, "step": column.step}
        case Number():
            found |= {"kind": "number", "min": column.min, "max": column.max}
            found |= _grid(column) if column.on_grid else {"per": column.steps / (column.max - column.min)}
    return found | _notation(column)


def _pattern(column: Datetime) -> str | None:
    """Return the date format as a JavaScript regular expression."""
    dates = date_format(column)
    return None if dates is None else dates.pattern.replace("(?P<", "(?<").replace(r"\s", r"[ \t\n\f\r]")


def _notation(column: Numeric) -> dict[str, str]:
    if isinstance(column, Datetime):
        return {}
    notation = Notation.of(column)
    return {"prefix": notation.prefix, "thousands": notation.thousands, "decimal": notation.decimal}


def _grid(column: Number) -> dict[str, Any]:
    exact = exact_grid(column)
    return {"unit": column.unit, "exact": exact and dict(zip(("start", "step", "power"), exact, strict=True))}


@singledispatch
def _score(score: Score) -> dict[str, Any]:
    raise TypeError(type(score).__name__)


@_score.register
def _(score: ShiftedScore) -> dict[str, Any]:
    return {
        "kind": "shifted",
        "of": _score(score.score),
        "label": score.label.name,
        "shifts": score.shifts.tolist(),
    }


@_score.register
def _(score: RarityScore) -> dict[str, Any]:
    parts = zip(score.bins, score.rarity, strict=True)
    return {"kind": "rarity", "columns": [_table(bins) | {"scores": rarity.tolist()} for bins, rarity in parts]}


@_score.register
def _(score: PairwiseScore) -> dict[str, Any]:
    return {
        "kind": "pairwise",
        "cells": [_table(spread.cells) for spread in score.spreads],
        "apart": [spread.rarity.tolist() for spread in score.spreads],
        "groups": [spread.of_cell.tolist() for spread in score.spreads],
        "pairs": [list(pair) for pair in score.tables.pairs],
        "gains": [each.tolist() for each in score.gains],
    }


@_score.register
def _(score: RandomScore) -> dict[str, Any]:
    return {"kind": "random", "names": list(score.names), "salt": str(score.salt), "span": SPAN}


def _table(bins: Bins) -> dict[str, Any]:
    starts = None if bins.starts is None else bins.starts.tolist()
    return {"column": bins.column.name, "starts": starts, "count": bins.count}

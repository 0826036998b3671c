"""Measure a schema with differential privacy: pay, take two noisy measurements, and derive the schema from them.

The first is a histogram of the kind and size of each cell (`KindHistograms`). Its bins are fixed in advance:
numbers have bins that grow in steps of 1, 2, 5 and 10 on both sides of 0, dates one for every ten years. The
second selects the texts that are frequent enough to be shown (`FrequentValues`). Types, bounds and values follow
from both, so the schema may be published. The names of the columns are taken as public. Every release made with
the schema carries the cost in its account.
"""

import contextlib
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri

from repsynth.arrays import Bools, Floats, Ints
from repsynth.columns.estimation import occupied
from repsynth.curator.infer import (
    MARKERS,
    PERSONAL,
    Decision,
    is_named,
    left_out,
    not_learned,
    schema_text,
    value_lines,
    words_of,
)
from repsynth.curator.profile import percent, quoted, some
from repsynth.errors import ConfigError, DataError, LedgerError, has_controls
from repsynth.io.encode import plain_array, read_numbers, read_seconds, read_text
from repsynth.io.source import CELLS, check_type, is_text, kind_of
from repsynth.io.sources import Source, open_source
from repsynth.io.values import NULLS
from repsynth.mechanism.meter import Meter, RawTable, sigma_for
from repsynth.mechanism.noise import Entropy
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SelectionEvent
from repsynth.privacy.formatting import upper
from repsynth.privacy.gaussian import mu_of
from repsynth.privacy.loss import Loss
from repsynth.run.payment import Payer
from repsynth.schema import Measured
from repsynth.schema.columns import plain_number

KINDS, VALUES = "kinds", "values"  # names of the two measurements

FAILURE = 1 / 200
"""The part of δ for the probability that a value is shown which only one record holds. A ledger reserves a
hundredth of its δ for such events, so two drafts at that δ fit."""

FIRST_YEAR, LAST_YEAR = 1700, 2200
_SMALLEST, _LARGEST = -6, 14  # powers of ten of the smallest and the largest bin of numbers
_DAY = 86_400
_HALF, _NEARLY_ALL = 0.5, 0.99
_LARGEST_INTEGER = 2.0**52
_WRITABLE = "^[^\\x00-\\x1f\\x7f\ufffd]{1,100}$"  # bytes that are no characters match nothing


# --- first measurement: what each cell is ---


class Kind(IntEnum):
    EMPTY = 0
    TEXT = 1
    WHOLE = 2
    FRACTION = 3
    DAY = 4
    TIME = 5


@cache
def edges_of(kind: Kind) -> Ints | Floats:
    """Return the edges of the bins of a kind.

    >>> edges_of(Kind.WHOLE)[42:49].tolist()
    [-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0]
    """
    if kind in (Kind.DAY, Kind.TIME):
        return np.arange(FIRST_YEAR, LAST_YEAR + 1, 10)
    if kind in (Kind.EMPTY, Kind.TEXT):
        return np.array([0, 1])
    powers = range(0 if kind is Kind.WHOLE else _SMALLEST, _LARGEST + 1)
    upwards = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return np.array([*(-edge for edge in reversed(upwards)), 0.0, *upwards])


@cache
def start_of(kind: Kind) -> int:
    """Return the index of the first bin of a kind."""
    return sum(len(edges_of(before)) - 1 for before in Kind if before < kind)


BINS = sum(len(edges_of(kind)) - 1 for kind in Kind)


@dataclass(frozen=True)
class KindHistograms:
    """Each row adds one to one bin of every column."""

    columns: tuple[str, ...]
    name: str = KINDS
    unit: int = 1
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        return math.sqrt(len(self.columns))

    def total(self, rows: Any) -> Ints:
        parts = [np.bincount(bins_of(rows.column(name)), minlength=BINS) for name in self.columns]
        return np.concatenate(parts)


def bins_of(cells: pa.Array) -> Ints:
    """Return the bin of each cell."""
    cells = plain_array(cells)
    kind = pa.types
    found = np.full(len(cells), start_of(Kind.TEXT))
    if kind.is_null(cells.type):
        return np.full(len(cells), start_of(Kind.EMPTY))
    if kind.is_date(cells.type) or kind.is_timestamp(cells.type):
        _put_times(found, read_seconds(cells))
    elif is_text(cells.type) or cells.type == CELLS:
        _put_numbers(found, read_numbers(cells))
        _put_times(found, read_seconds(cells))
    else:
        _put_numbers(found, read_numbers(cells))
    found[_empty(cells)] = start_of(Kind.EMPTY)
    return found


def texts_of(cells: pa.Array) -> pa.Array:
    """Return each cell as text, null if it is empty.

    The text of a number, a time or a boolean does not depend on its storage type, which a reader may have inferred
    from other cells.

    >>> texts_of(pa.array(["007", "True", "2020-01-31 00:00:00", "x"])).to_pylist()
    ['7', 'true', '2020-01-31', 'x']
    """
    cells = plain_array(cells)
    texts, numbers = read_text(cells), pa.array(read_numbers(cells), from_pandas=True)
    lower, seconds = pc.ascii_lower(texts), read_seconds(cells)
    texts = pc.if_else(pc.is_in(lower, pa.array(["true", "false"], pa.large_string())), lower, texts)
    times = pc.replace_substring(seconds.cast(pa.timestamp("s")).cast(pa.large_string()), " 00:00:00", "")
    texts = pc.coalesce(read_text(numbers), times, texts)
    texts = pc.replace_substring_regex(texts, "^[+]?(?i:inf|infinity)$", "inf")
    texts = pc.replace_substring_regex(texts, "^-(?i:inf|infinity)$", "-inf")
    return pc.if_else(pc.is_in(pc.ascii_lower(texts), pa.array(NULLS, pa.large_string())), None, texts)


def _empty(cells: pa.Array) -> Bools:
    if cells.type == CELLS:  # a time may be too far away to have a text
        told = [part.is_valid() for part in cells.flatten()[1:3]]
        absent = pc.invert(pc.or_(*told))
        empty: Bools = pc.and_(texts_of(cells).is_null(), absent).to_numpy(zero_copy_only=False)
        return empty
    if is_text(cells.type):
        cells = texts_of(cells)
    missing: Bools = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return missing


def _put_numbers(found: Ints, numbers: Floats) -> None:
    """Put numbers into bins by size. A number too large for all bins stays a text."""
    finite = np.isfinite(numbers)
    whole = finite & (numbers == np.floor(np.where(finite, numbers, 0.5)))
    _put(found, Kind.WHOLE, whole, numbers)
    _put(found, Kind.FRACTION, finite & ~whole, numbers)


def _put_times(found: Ints, seconds: pa.Array) -> None:
    known: Bools = seconds.is_valid().to_numpy(zero_copy_only=False)
    at: Ints = pc.fill_null(seconds, 0).to_numpy(zero_copy_only=False)
    years = at.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    _put(found, Kind.DAY, known & (at % _DAY == 0), years)
    _put(found, Kind.TIME, known & (at % _DAY != 0), years)


def _put(found: Ints, kind: Kind, which: Bools, values: Ints | Floats) -> None:
    edges = edges_of(kind)
    place = np.searchsorted(edges, values, side="right") - 1
    inside = which & (place >= 0) & (place < len(edges) - 1)
    found[inside] = start_of(kind) + place[inside]


# --- second measurement: frequent values ---


@dataclass(frozen=True)
class FrequentValues:
    """Count the cells of some columns by their text; of `mixed` columns only cells that are texts. A text that is
    too long for a category or cannot be written is not counted."""

    columns: tuple[str, ...]
    mixed: frozenset[str]
    name: str = VALUES

    def texts(self, name: str, cells: pa.Array) -> pa.Array:
        texts = texts_of(cells)
        kept = pc.match_substring_regex(texts, _WRITABLE)
        if name in self.mixed:
            kept = pc.and_(kept, pa.array(bins_of(cells) == start_of(Kind.TEXT)))
        return pc.if_else(kept, texts, None)


# --- what a column is: post-processing ---


ABOVE_NOISE = float(-ndtri(1e-3 / BINS))
"""The number of standard deviations that noise exceeds somewhere in one column of a thousand."""


@dataclass(frozen=True)
class ColumnKinds:
    """The kinds of cells of a column above the noise: their approximate numbers and bounds."""

    masses: Mapping[Kind, float]
    ends: Mapping[Kind, tuple[float, float]]

    @classmethod
    def of(cls, noisy: Floats, sigma: float) -> "ColumnKinds":
        """Read a column's noisy bins.

        >>> noisy = np.zeros(BINS)
        >>> noisy[start_of(Kind.WHOLE) + 48 : start_of(Kind.WHOLE) + 50] = 900.0
        >>> ColumnKinds.of(noisy, sigma=10.0).ends[Kind.WHOLE]
        (5.0, 20.0)
        """
        masses, ends = {}, {}
        for kind in Kind:
            edges = edges_of(kind)
            counts = noisy[start_of(kind) : start_of(kind) + len(edges) - 1]
            inside = occupied(counts, np.full(len(counts), sigma), ABOVE_NOISE)
            if inside is not None:
                masses[kind] = max(float(counts[inside].sum()), 0.0)
                ends[kind] = (float(edges[inside.start]), float(edges[inside.stop]))
        return cls(masses, ends)

    def mass(self, *kinds: Kind) -> float:
        return sum(self.masses.get(kind, 0.0) for kind in kinds)

    @property
    def cells(self) -> float:
        return self.mass(*Kind)

    @property
    def numbers(self) -> bool:
        return self.mass(Kind.WHOLE, Kind.FRACTION) > max(self.mass(Kind.DAY, Kind.TIME), self.mass(Kind.TEXT))

    @property
    def times(self) -> bool:
        return not self.numbers and self.mass(Kind.DAY, Kind.TIME) > self.mass(Kind.TEXT)

    def between(self, *kinds: Kind) -> tuple[float, float]:
        ends = [self.ends[kind] for kind in kinds if kind in self.ends]
        return min(low for low, _ in ends), max(high for _, high in ends)


def _decide(name: str, shape: ColumnKinds, values: Mapping[str, int], *, is_label: bool) -> Decision:
    values = _merged(values, as_numbers=(shape.numbers or shape.times) and not is_label)
    if not shape.masses:
        return left_out(name, "nothing is above the noise")
    if is_label:
        return _category(name, shape, values, "the label")
    if shape.numbers and is_named(words_of(name), PERSONAL):
        return not_learned(name, "numbers, named like an identifier")
    if shape.numbers or shape.times:
        return _bounded(name, shape, values)
    return _category(name, shape, values, "texts")


def _merged(values: Mapping[str, int], *, as_numbers: bool) -> dict[str, int]:
    """Strip blanks and, in a column of numbers, list each number once."""
    found: dict[str, int] = {}
    first: dict[str | float, str] = {}
    for text, count in values.items():
        short = text.strip()
        number = plain_number(short) if as_numbers else None
        place = first.setdefault(short if number is None else number, short)
        if place and not has_controls(place):
            found[place] = found.get(place, 0) + count
    return found


def _bounded(name: str, shape: ColumnKinds, values: Mapping[str, int]) -> Decision:
    """Return a column of numbers or dates."""
    special, lines = _special(shape, values)
    if shape.times:
        first, after = (int(year) for year in shape.between(Kind.DAY, Kind.TIME))
        start, end = ("T00:00:00", "T23:59:59") if Kind.TIME in shape.masses else ("", "")
        kind, what = "datetime", "times" if start else "days"
        bounds = f"{first}-01-01{start}", f"{after - 1}-12-31{end}"
    else:
        low, high = shape.between(Kind.WHOLE, Kind.FRACTION)
        kind, what, bounds = "number", "numbers", (repr(low), repr(high))
        if Kind.FRACTION not in shape.masses:
            last = max(min(math.ceil(high) - 1, int(_LARGEST_INTEGER)), int(low) + 1)
            kind, what, bounds = "integer", "whole numbers", (str(int(low)), str(last))
    return Decision(name, kind, what + special, (), (f"min = {bounds[0]}", f"max = {bounds[1]}", *lines))


def _special(shape: ColumnKinds, values: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the texts among numbers or dates that are kept as codes, in words and as lines of the schema."""
    codes = [text for text in values if text.lower() not in MARKERS]
    named = sum(values[text] for text in codes)
    unread = shape.mass(Kind.TEXT) - named
    absent = unread > _HALF * shape.mass(Kind.TEXT) or len(codes) < len(values)
    lines = [f"special = [{', '.join(map(quoted, codes))}]"] if codes else []
    lines += ["missing = true"] if Kind.EMPTY in shape.masses or (Kind.TEXT in shape.masses and absent) else []
    if not codes:
        return "", lines
    return f"; {some(len(codes), 'code')} among them in {percent(named, shape.cells)}", lines


def _category(name: str, shape: ColumnKinds, values: Mapping[str, int], what: str) -> Decision:
    seen = shape.cells - shape.mass(Kind.EMPTY)
    shown = float(sum(values.values()))
    if what != "the label" and (not values or shown < _HALF * seen):
        return left_out(name, "texts, most of them too rare to be shown: names, free text or many codes")
    if {text.lower() for text in values} == {"true", "false"}:
        return Decision(name, "boolean", "true or false", (), tuple(_missing(shape)))
    reason = f"{what}: {some(len(values), 'value')} in about {percent(min(shown, seen), seen)} of the cells"
    warnings: tuple[str, ...] = ()
    if shown < _NEARLY_ALL * seen:
        rarer = percent(1 - shown / seen)
        warnings = (f"about {rarer} of the cells have rarer values; they will count as missing",)
    lines = value_lines(values)
    rest = [] if what == "the label" else _missing(shape, rare=bool(warnings))
    return Decision(name, "category", reason, warnings, (*lines, *rest))


def _missing(shape: ColumnKinds, *, rare: bool = False) -> list[str]:
    return ["missing = true"] if rare or Kind.EMPTY in shape.masses else []


# --- the plan and the way through ---


class MeasuredDraft(msgspec.Struct, frozen=True):
    """A measured schema, its cost, and what it cannot have found. It may be published.

    A value in about `fewest` rows is shown half of the time. A bin with `least` rows is above the noise in which
    types and bounds are found.
    """

    text: str
    epsilon: float
    delta: float
    mu: float
    failure: float
    fewest: int
    least: int
    columns: tuple[Decision, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class DraftPlan:
    """How the budget of a measured schema is spent. It does not depend on the table."""

    budget: Budget
    columns: tuple[str, ...]
    label: str | None
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def failure(self) -> float:
        return self.budget.delta * FAILURE

    @property
    def mu(self) -> float:
        """The μ of both measurements together."""
        return mu_of(self.budget.epsilon * (1 - 1e-9), self.budget.delta * (1 - FAILURE) * (1 - 1e-12))

    @property
    def charges(self) -> dict[str, float]:
        """Half of μ² for each measurement."""
        part = self.mu * math.sqrt(0.5) * (1 - 1e-12)
        return {KINDS: part, VALUES: part}

    @property
    def measured(self) -> Measured:
        """The cost, which is charged even if there is nothing to select."""
        return Measured(mu=self.mu, failure=self.failure, mark=self.mark, columns=self.columns)

    @property
    def loss(self) -> Loss:
        return Loss.of_measured(self.measured)

    @property
    def sigma(self) -> float:
        return sigma_for(math.sqrt(len(self.columns)), self.charges[KINDS])

    def selection(self, columns: int) -> SelectionEvent:
        """Return the event of selecting values of this number of columns."""
        sigma = sigma_for(math.sqrt(columns), self.charges[VALUES])
        threshold = max(2, math.ceil(1.5 - sigma * float(ndtri(self.failure / columns))))
        while SelectionEvent(VALUES, columns, sigma, threshold).failure > self.failure:
            threshold += 1
        return SelectionEvent(VALUES, columns, sigma, threshold)


def measure_schema(
    table: Any,
    *,
    epsilon: float,
    delta: float,
    one_row_per_person: bool = False,
    label: str | None = None,
    ids: Sequence[str] = (),
    rows: int | None = None,
    payer: Payer | None = None,
    entropy: Entropy = os.urandom,
) -> MeasuredDraft:
    """Measure types, bounds and values of a table with noise: the schema needs no confirmation.

    The charge protects one row, so the caller must declare `one_row_per_person`. Only names of columns are taken
    as public. With a public number of `rows`, a budget that could find nothing is refused before it is spent.

    >>> people = pa.table({"age": [30, 41, 52] * 3000, "smoker": ["yes", "no", "no"] * 3000})
    >>> draft = measure_schema(people, epsilon=1.0, delta=1e-9, one_row_per_person=True, label="smoker")
    >>> [(column.name, column.type) for column in draft.columns], draft.epsilon <= 1.0
    ([('age', 'integer'), ('smoker', 'category')], True)
    """
    if one_row_per_person is not True:
        raise ConfigError(
            "measuring a schema protects single rows: declare that no person has more than one row "
            "(--one-row-per-person, or one_row_per_person=True); otherwise write the schema from public knowledge "
            "and add [person]. Nothing was spent"
        )
    source = open_source(table)
    plan = _plan(source, Budget.approximate(epsilon=epsilon, delta=delta), label, ids)
    _check_rows(plan, rows)
    with _paid(payer, plan):
        meter = Meter(RawTable(source), plan.mu, entropy, failure=plan.failure)
        kinds = KindHistograms(plan.columns)
        noisy = meter.measure(kinds, mu=plan.charges[KINDS]).astype(np.float64)
        shapes = {
            name: ColumnKinds.of(noisy[k * BINS : (k + 1) * BINS], plan.sigma)
            for k, name in enumerate(plan.columns)
        }
        asked = _asked(shapes, label)
        values: dict[str, dict[str, int]] = {}
        if asked.columns:
            threshold = plan.selection(len(asked.columns)).threshold
            values = meter.select(asked, mu=plan.charges[VALUES], threshold=threshold)
    return _draft(
        plan,
        source.names,
        shapes,
        values,
        selected=max(len(asked.columns), 1),
        seeded=entropy is not os.urandom,
    )


def _plan(source: Source, budget: Budget, label: str | None, ids: Sequence[str]) -> DraftPlan:
    """Check the request before anything is spent."""
    names = source.names
    if len(set(names)) < len(names):
        raise DataError("a column name is used more than once; rename the columns first")
    if any(not name.strip() or re.fullmatch(r"[\s\d.,:+/-]+", name) for name in names):
        raise DataError(
            "a column has no name, or a number for one: is the first line a header? Names are taken as public, so "
            "give the table a header line first. Nothing was spent"
        )
    unknown = [name for name in (*ids, *([label] if label else [])) if name not in names]
    if unknown:
        raise ConfigError(f"no column {', '.join(map(repr, unknown))} in the data; check the spelling")
    if label in ids:
        raise ConfigError("the label cannot be an id; leave it out of the ids")
    if source.engine is not None:
        raise ConfigError(f"a schema is not measured on a cluster of {source.engine}; give the table as files")
    for name, kind in zip(names, source.types, strict=True):
        if kind is not None:
            check_type(name, kind, learned=name not in ids)
            # Numbers of DuckDB may be rounded; other types may not read as their text would (see `check_storage`).
            read = ("text", "null") if source.kind == "duckdb" else ("text", "null", "numbers")
            if name not in ids and kind_of(kind) not in read:
                raise DataError(
                    f"column '{name}' is stored as {kind_of(kind)}, which may not read as its text would; "
                    "pass the file, or read it with dtype=str. Nothing was spent"
                )
    columns = tuple(name for name in names if name not in ids)
    if not columns:
        raise ConfigError("there is no column to measure; leave out fewer ids")
    return DraftPlan(budget, columns, label)


def _check_rows(plan: DraftPlan, rows: int | None) -> None:
    fewest = plan.selection(1).threshold
    if rows is not None and max(fewest, ABOVE_NOISE * plan.sigma) > rows / 2:
        raise ConfigError(
            f"with so small a budget a value must be in {fewest:,} rows to be shown, and a bound needs "
            f"{math.ceil(ABOVE_NOISE * plan.sigma):,} rows beside it; of {rows:,} rows next to nothing would be "
            "found. Give a larger epsilon, or write the schema by hand. Nothing was spent"
        )


@contextlib.contextmanager
def _paid(payer: Payer | None, plan: DraftPlan) -> Iterator[None]:
    """Reserve the whole cost before the data is read. A failure afterwards leaves it spent."""
    if payer is None:
        yield
        return
    what = f"a measured schema, ε = {upper(plan.budget.epsilon)}"
    run = payer.ledger.reserve(payer.dataset, {}, what=what, measured=plan.measured)
    yield
    with contextlib.suppress(LedgerError):  # it counts as spent in any case, and the schema is not lost
        payer.ledger.commit(payer.dataset, run)


def _asked(shapes: dict[str, ColumnKinds], label: str | None) -> FrequentValues:
    """Return the values to select, by released counts alone."""
    texts = {name for name, shape in shapes.items() if name == label or Kind.TEXT in shape.masses}
    mixed = {name for name in texts if name != label and (shapes[name].numbers or shapes[name].times)}
    columns = tuple(name for name in shapes if name in texts)
    return FrequentValues(columns, frozenset(mixed))


def _draft(
    plan: DraftPlan,
    names: Sequence[str],
    shapes: dict[str, ColumnKinds],
    values: dict[str, dict[str, int]],
    *,
    selected: int,
    seeded: bool,
) -> MeasuredDraft:
    """Derive the schema: post-processing."""
    label, warnings = plan.label, []
    columns = {
        name: _decide(name, shapes[name], values.get(name, {}), is_label=name == label)
        if name in shapes
        else not_learned(name, "an identifier, as declared")
        for name in names
    }
    if label is not None and len(values.get(label, {})) < 2:
        warnings.append(f"the label {quoted(label)} has fewer than two values above the noise: it is left out")
        columns[label] = left_out(label, columns[label].reason)
        label = None
    if all(column.type in ("id", "drop") or name == label for name, column in columns.items()):
        warnings.append("nothing to learn was found: give a larger epsilon, or write the schema by hand")
    loss, delta, found = plan.loss, plan.budget.delta, tuple(columns.values())
    head = (_SEEDED if seeded else "") + _HEAD.format(upper(loss.epsilon(delta)), upper(delta, 3))
    listed = ", ".join(map(quoted, plan.columns))
    cost = f'mu = {plan.mu!r}\nfailure = {plan.failure!r}\nmark = "{plan.mark}"\ncolumns = [{listed}]\n'
    return MeasuredDraft(
        text=f"{schema_text(head, found, label, warnings)}\n[measured]\n{cost}",
        epsilon=loss.epsilon(delta),
        delta=delta,
        mu=plan.mu,
        failure=plan.failure,
        fewest=plan.selection(selected).threshold,
        least=math.ceil(ABOVE_NOISE * plan.sigma),
        columns=found,
        warnings=tuple(warnings),
    )


_SEEDED = "# NOT PRIVATE: the noise came from a seed; for experiments only.\n"
_HEAD = """\
# Measured with differential privacy, ε = {} at δ = {}: it may be published as it is.
# Names of columns were taken as public. A bound or a list of values that is publicly known may replace
# what was found, at no cost. The table [measured] at the end records the cost: leave it as it is.
one_row_per_person = true"""

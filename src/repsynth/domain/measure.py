"""Measure a schema: pay, two noisy looks at the table, and the text that follows from them."""

import contextlib
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri

from repsynth.curator.decision import Decision
from repsynth.curator.draft import schema_text
from repsynth.curator.look import quoted
from repsynth.data.sources import Source, open_source
from repsynth.data.sources.base import check_type, kind_of
from repsynth.domain.found import ABOVE_NOISE, Shape, decide, not_learned
from repsynth.domain.kinds import BINS, KINDS, Kind, KindHistograms, bins_of, start_of, texts_of
from repsynth.errors import ConfigError, DataError, LedgerError
from repsynth.mechanism.noise import Entropy
from repsynth.mechanism.scout import Scout
from repsynth.pipeline.payment import Payer
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SelectionEvent
from repsynth.privacy.gaussian import mu_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.shown import at_most
from repsynth.schema import Measured

VALUES = "values"
"""What the selection is called."""

FAILURE = 1 / 200
"""The part of δ for the chance that a value is shown which one record alone holds. A ledger sets a hundredth of
its δ apart for such chances, so two drafts at that δ fit."""

_WRITABLE = "^[^\\x00-\\x1f\\x7f\ufffd]{1,100}$"  # bytes that are no characters match nothing


class MeasuredDraft(msgspec.Struct, frozen=True):
    """A schema that was measured, with what it cost and what it cannot have found. It may be published."""

    text: str
    epsilon: float
    delta: float
    mu: float
    failure: float
    fewest: int
    """A value in about so many rows is shown as often as not."""
    least: int
    """So many rows in one bin stand above the noise that types and bounds are found in."""
    columns: tuple[Decision, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class DraftPlan:
    """How the budget of a measured schema is spent, whatever the table."""

    budget: Budget
    columns: tuple[str, ...]
    label: str | None
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def failure(self) -> float:
        """The part of δ for the selection."""
        return self.budget.delta * FAILURE

    @property
    def mu(self) -> float:
        """Of both measurements together: what ε leaves beside that part of δ."""
        return mu_of(self.budget.epsilon * (1 - 1e-9), self.budget.delta * (1 - FAILURE) * (1 - 1e-12))

    @property
    def charges(self) -> dict[str, float]:
        """Half of μ² for each measurement."""
        part = self.mu * math.sqrt(0.5) * (1 - 1e-12)
        return {KINDS: part, VALUES: part}

    @property
    def measured(self) -> Measured:
        """What it costs, whether or not there is anything to select from in the end."""
        return Measured(mu=self.mu, failure=self.failure, mark=self.mark, columns=self.columns)

    @property
    def loss(self) -> Loss:
        return Loss.of_measured(self.measured)

    @property
    def sigma(self) -> float:
        """The noise of a bin of kinds."""
        return math.sqrt(len(self.columns)) / self.charges[KINDS] * (1 + 1e-13)

    def selection(self, columns: int) -> SelectionEvent:
        """The noise and the threshold with which values of so many columns are selected."""
        sigma = math.sqrt(columns) / self.charges[VALUES] * (1 + 1e-13)
        threshold = max(2, math.ceil(1.5 - sigma * float(ndtri(self.failure / columns))))
        while SelectionEvent(VALUES, columns, sigma, threshold).failure > self.failure:
            threshold += 1
        return SelectionEvent(VALUES, columns, sigma, threshold)


@dataclass(frozen=True)
class FrequentValues:
    """The texts that are counted: all cells of some columns, and only those that are texts of `mixed` ones.

    What is longer than a value of a category would be, or cannot be written down, counts for nothing.
    """

    columns: tuple[str, ...]
    mixed: frozenset[str]
    name: str = VALUES
    decimal: str = "."

    def texts(self, name: str, cells: pa.Array) -> pa.Array:
        """The value of each cell, null where it counts for none."""
        texts = texts_of(cells)
        kept = pc.match_substring_regex(texts, _WRITABLE)
        if name in self.mixed:
            kept = pc.and_(kept, pa.array(bins_of(cells, self.decimal) == start_of(Kind.TEXT)))
        return pc.if_else(kept, texts, None)


def measure_schema(
    table: Any,
    *,
    epsilon: float,
    delta: float,
    one_row_per_person: bool = False,
    label: str | None = None,
    ids: Sequence[str] = (),
    rows: int | None = None,
    decimal: str | None = None,
    payer: Payer | None = None,
    on_step: Callable[[str], None] = lambda step: None,
    entropy: Entropy = os.urandom,
) -> MeasuredDraft:
    """A schema whose types, bounds and values are noisy measurements of a table: it needs no confirmation.

    Its charge protects one row, so the caller must declare `one_row_per_person`. Names of columns are taken as
    public, and nothing else. `rows`, if it is public how many there are, refuses a
    budget that could find nothing before anything is spent. `decimal` is the mark before decimals in text.

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
    source, mark = open_source(table), decimal or "."
    plan = _plan(source, Budget.approximate(epsilon=epsilon, delta=delta), label, ids, mark)
    _check_rows(plan, rows)
    with _paid(payer, plan):
        scout = Scout(source, plan.mu, plan.failure, entropy)
        on_step(KINDS)
        noisy = scout.measure(KindHistograms(plan.columns, decimal=mark), sigma=plan.sigma).astype(np.float64)
        shapes = {
            name: Shape.of(noisy[k * BINS : (k + 1) * BINS], plan.sigma) for k, name in enumerate(plan.columns)
        }
        asked = _asked(shapes, label, mark)
        values: dict[str, dict[str, int]] = {}
        if asked.columns:
            on_step(VALUES)
            event = plan.selection(len(asked.columns))
            values = scout.select(asked, sigma=event.sigma, threshold=event.threshold)
    return _draft(
        plan,
        source,
        shapes,
        values,
        decimal=mark,
        selected=max(len(asked.columns), 1),
        seeded=entropy is not os.urandom,
    )


def _check_storage(name: str, kind: pa.DataType, decimal: str, *, learned: bool) -> None:
    """Refuse a storage type whose cells may be counted differently from their text (see `check_storage`)."""
    stored = kind_of(kind)
    known = ("text", "null", *(["numbers"] if decimal == "." else []))
    if learned and stored not in known:
        raise DataError(
            f"column '{name}' is stored as {stored}, which may not read as its text would; pass the file, or read "
            "it with dtype=str. Nothing was spent"
        )


def _plan(source: Source, budget: Budget, label: str | None, ids: Sequence[str], decimal: str) -> DraftPlan:
    """What is asked of the table, checked before anything is spent."""
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
            mark = "," if source.kind == "duckdb" else decimal  # whose numbers may be rounded: text alone
            _check_storage(name, kind, mark, learned=name not in ids)
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
    """Set the whole cost aside before the data is read; what goes wrong afterwards leaves it spent."""
    if payer is None:
        yield
        return
    what = f"a measured schema, ε = {at_most(plan.budget.epsilon)}"
    run = payer.ledger.reserve(payer.dataset, {}, what=what, measured=plan.measured)
    yield
    with contextlib.suppress(LedgerError):  # it counts as spent all the same, and the schema is not lost
        payer.ledger.commit(payer.dataset, run)


def _asked(shapes: dict[str, Shape], label: str | None, decimal: str) -> FrequentValues:
    """Which columns the selection is about: by released counts alone."""
    texts = {name for name, shape in shapes.items() if name == label or Kind.TEXT in shape.masses}
    mixed = {name for name in texts if name != label and (shapes[name].numbers or shapes[name].times)}
    columns = tuple(name for name in shapes if name in texts)
    return FrequentValues(columns, frozenset(mixed), decimal=decimal)


def _draft(
    plan: DraftPlan,
    source: Source,
    shapes: dict[str, Shape],
    values: dict[str, dict[str, int]],
    *,
    decimal: str,
    selected: int,
    seeded: bool,
) -> MeasuredDraft:
    """The schema that follows: post-processing."""
    columns = tuple(
        decide(name, shapes[name], values.get(name, {}), is_label=name == plan.label)
        if name in shapes
        else not_learned(name, "an identifier, as was said")
        for name in source.names
    )
    if decimal != ".":
        mark = f"decimal = {quoted(decimal)}"
        columns = tuple(
            msgspec.structs.replace(c, lines=(*c.lines, mark)) if c.type == "number" else c for c in columns
        )
    label, warnings = plan.label, []
    if label is not None and len(values.get(label, {})) < 2:
        warnings.append(f"the label {quoted(label)} has fewer than two values above the noise: it is left out")
        columns = tuple(not_learned(c.name, c.reason) if c.name == label else c for c in columns)
        label = None
    if all(column.type == "id" or column.name == label for column in columns):
        warnings.append("nothing to learn was found: give a larger epsilon, or write the schema by hand")
    loss, delta = plan.loss, plan.budget.delta
    return MeasuredDraft(
        text=schema_text(_SEEDED + _head(plan) if seeded else _head(plan), columns, label, warnings) + _cost(plan),
        epsilon=loss.epsilon(delta),
        delta=delta,
        mu=plan.mu,
        failure=plan.failure,
        fewest=plan.selection(selected).threshold,
        least=math.ceil(ABOVE_NOISE * plan.sigma),
        columns=columns,
        warnings=tuple(warnings),
    )


_SEEDED = "# NOT PRIVATE: the noise came from a seed; for experiments only.\n"


def _head(plan: DraftPlan) -> str:
    epsilon, delta = at_most(plan.loss.epsilon(plan.budget.delta)), at_most(plan.budget.delta, 3)
    return (
        f"# Measured with differential privacy, ε = {epsilon} at δ = {delta}: it may be published as it is.\n"
        "# Names of columns were taken as public. A bound or a list of values that is publicly known may replace\n"
        "# what was found, at no cost. The table [measured] at the end carries the cost on: leave it as it is.\n"
        "one_row_per_person = true"
    )


def _cost(plan: DraftPlan) -> str:
    names = ", ".join(quoted(name) for name in plan.columns)
    return (
        f'\n[measured]\nmu = {plan.mu!r}\nfailure = {plan.failure!r}\nmark = "{plan.mark}"\ncolumns = [{names}]\n'
    )

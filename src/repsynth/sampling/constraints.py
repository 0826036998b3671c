"""Sampling under the rules of the schema, and under a condition.

If every real record obeys a rule, the released tables already reflect it. Rejecting the synthetic records that
break it would condition on the rule a second time and distort the margins. So the model is fitted again, on the
records that obey:

1. Draw a pool from the model. Repair the records that break a rule, so that few are lost.
2. Rake the pool (iterative proportional fitting) to the tables of the model and the histogram of every column.
   The result is a factor for each cell of each table.
3. Sample: draw and repair as before, weight each record by the product of its factors, and select by weight.

A condition (`where`) is met by rejection sampling. All of this is post-processing of the release.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol

import numpy as np

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.errors import ConfigError
from repsynth.io.records import Records, join
from repsynth.models.base import Sampler
from repsynth.models.marginal.tree import rake
from repsynth.models.statistics import cells_of
from repsynth.sampling.derived import holds, with_following
from repsynth.schema import Discrete, Follows, Numeric, RowRule, Schema
from repsynth.schema.conditions import Condition, columns_of
from repsynth.schema.rules import condition_of, rule_text, total_of

_MOST = 262_144
"""Records drawn at a time."""

_SEARCHED, _RAREST = 2_000_000, 1_000
"""Give up after drawing this many records if fewer than one in _RAREST met the condition."""

_TIMES, _SMALLEST, _LARGEST = 4, 60_000, 200_000
"""The size of the pool: records for each row of the table, at least, and at most."""

_SWEEPS, _TRIES = 4, 64
"""Repair: passes over the rules, and values tried for a cell."""

_CELLS = 128
"""Cells of a number column's histogram in raking."""

_PASSES, _LAST_PASSES, _FULL = 10, 60, 60
"""Raking: passes over all tables; passes over the histograms alone; how many passes take full steps."""

_SPARE, _FEWEST, _MOST_TIMES = 3.0, 1_024, 8
"""Records drawn to select from: effective records for each row, at least, and at most for each row."""

_TRIMMED = 0.999
"""Trim weights at this quantile of the pool: factors of cells outside of the pool are unreliable."""

_STAGES = (0.7, 0.2, 0.07, 0.03)
"""Select these parts of the rows one after another. Each stage corrects the margins of the earlier ones."""


@dataclass
class Drawn:
    """Counts of the records that were drawn and of those that met the condition. Thread-safe."""

    records: int = 0
    kept: int = 0
    weighted: int = 0
    """The given rows whose completion was chosen among candidates by weight."""
    effective: float = 0.0
    """The sum, over these rows, of the effective number of candidates."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, records: int, kept: int, effective: Floats | None = None) -> None:
        """Add to the counts. `effective` is infinite for rows that needed no weights."""
        with self._lock:
            self.records, self.kept = self.records + records, self.kept + kept
            if effective is not None:
                chosen = effective[np.isfinite(effective)]
                self.weighted, self.effective = self.weighted + len(chosen), self.effective + float(chosen.sum())

    @property
    def effective_size(self) -> float | None:
        """The mean effective number of candidates; None if no record was chosen by weight."""
        return self.effective / self.weighted if self.weighted else None

    @property
    def again(self) -> float:
        """The fraction of the records that were rejected."""
        return 1 - self.kept / self.records if self.records else 0.0


@dataclass(frozen=True)
class _Check:
    """A rule: its number in the schema, the columns that it restricts, and the test of a record."""

    number: int
    text: str
    columns: tuple[str, ...]
    obeyed: Callable[[Records], Bools]

    @classmethod
    def of(cls, number: int, schema: Schema) -> "_Check | None":
        """Return the check of a rule; None for one that no record can break."""
        rule = schema.rules[number - 1]
        if isinstance(rule, RowRule):
            condition = condition_of(rule, schema)
            columns = tuple(sorted(columns_of(condition)))
            return cls(number, rule_text(rule), columns, lambda records: holds(condition, records, schema))
        if rule.equals is None:
            return None
        alone = replace(schema, rules=(rule,))  # broken by a sum outside of its column's bounds
        columns = tuple(name for _, name in total_of(rule, schema).terms)
        return cls(number, rule_text(rule), columns, lambda records: with_following(records, alone)[1])

    def __str__(self) -> str:
        return f"rule {self.number} ({self.text})"


class Axis(Protocol):
    """Cells of one column: their number, and the cell of each record."""

    @property
    def count(self) -> int: ...

    def of(self, records: Records) -> Ints: ...


class _Values:
    """Cells of a column: one for each category, and quantiles of the pool for numbers."""

    def __init__(self, column: Discrete | Numeric, pool: Records) -> None:
        self.name = column.name
        if isinstance(column, Discrete):
            self.starts: Ints = np.arange(-1, column.size)
        else:
            codes = np.sort(pool.codes[column.name])
            self.starts = np.unique(np.append(-1, codes[:: max(1, len(codes) // _CELLS)]))
        self.count = len(self.starts)

    def of(self, records: Records) -> Ints:
        return np.searchsorted(self.starts, records.codes[self.name], side="right") - 1


@dataclass(frozen=True)
class _Table:
    """A table that the pool is raked to: its target shares, and the fitted factors."""

    axes: tuple[Axis, ...]
    wanted: Floats
    factors: Floats

    def cells(self, records: Records) -> Int32s:
        return _cells(self.axes, records)


def _cells(axes: Sequence[Axis], records: Records) -> Int32s:
    return cells_of([axis.of(records) for axis in axes], tuple(axis.count for axis in axes)).astype(np.int32)


@dataclass(frozen=True)
class Support:
    """A fitted model, restricted to the records that obey the rules.

    `broken` is the share of the model's records that broke a rule before repair. `pool` is the number of records
    in the pool, and `effective` its effective sample size after raking (Kish). `costliest` is the rule that most
    records broke.
    """

    sampler: Sampler
    schema: Schema
    checks: tuple[_Check, ...]
    tables: tuple[_Table, ...] = ()
    margins: tuple[_Table, ...] = ()
    largest: float = np.inf
    broken: float = 0.0
    pool: int = 0
    effective: float = 0.0
    costliest: str = ""

    @property
    def effective_size(self) -> float | None:
        """The effective sample size relative to the pool; None without rules."""
        return self.effective / self.pool if self.pool else None

    def cautions(self, rows: int) -> tuple[str, ...]:
        """Warn if the effective sample size of the pool is below the number of rows."""
        if self.effective >= min(rows, self.pool // _TIMES):
            return ()
        return (
            f"few records of the model obey the rules: the effective size of the pool is {self.effective:,.0f} "
            f"for {rows:,} rows, so they are less exact; {self.costliest} is broken most often: correct it, or "
            "leave it out of sampling (--ignore-rule, free of charge)",
        )

    def draw(
        self,
        rows: int,
        generator: np.random.Generator,
        drawn: Drawn,
        *,
        label: int | None = None,
        where: Condition | None = None,
    ) -> Records:
        """Draw records that obey the rules and meet a condition; refuse if almost none does."""
        if not self.checks and where is None:
            drawn.add(rows, rows)
            return with_following(self.sampler.draw(rows, generator, label), self.schema)[0]
        ratio = self.effective_size or 1.0
        wanted = rows
        if self.checks:  # draw more, to select from
            wanted = max(min(int(_SPARE / ratio * rows), max(_MOST_TIMES * rows, 2 * _MOST)), _FEWEST)
        kept: list[Records] = []
        asked, tried, found = wanted, 0, 0
        while not kept or found < wanted:
            count = min(asked, _MOST)
            records = self.repaired(self.sampler.draw(count, generator, label), generator)
            records, obeys = self.obeying(records, where)
            kept.append(records.take(np.flatnonzero(obeys)))
            tried, found = tried + count, found + kept[-1].rows
            if tried > _SEARCHED and found >= rows:
                break
            if tried > _SEARCHED and found * _RAREST < tried:
                raise ConfigError(
                    f"of {tried:,} records that the model drew, {found:,} obey the rules of the schema and the "
                    "condition; use a less rare condition, or ignore a rule"
                )
            asked = int(1.1 * (wanted - found) * tried / max(found, 1)) + 64
        drawn.add(tried, found)
        records = join(kept, list(kept[0].codes))
        if not self.checks:
            return records.take(np.arange(rows))
        whole = label is None and where is None
        return records.take(self._select(records, rows, generator, self.margins if whole else ()))

    def repaired(self, records: Records, generator: np.random.Generator, keep: Iterable[str] = ()) -> Records:
        """Change cells of records that break a rule until they obey, if possible.

        New values come from other records. The column that changes is random for each record, so no column of a
        rule changes in all of them. The label and the columns of `keep` do not change.
        """
        fixed = {self.schema.label, *keep}
        repaired = Records(records.rows, {name: column.copy() for name, column in records.codes.items()})
        rank = {name: generator.random(records.rows) for check in self.checks for name in check.columns}
        for _ in range(_SWEEPS):
            broken = False
            for check in self.checks:
                wrong = np.flatnonzero(~check.obeyed(repaired))
                broken |= wrong.size > 0
                free = [name for name in check.columns if name not in fixed]
                if wrong.size and free:
                    _repair(check, free, wrong, rank, repaired.codes, records.codes, generator)
            if not broken:
                break
        return repaired

    def obeying(self, records: Records, where: Condition | None = None) -> tuple[Records, Bools]:
        """Return the records with their derived columns, and which of them obey."""
        obeys = np.all([check.obeyed(records) for check in self.checks], axis=0) & np.ones(records.rows, np.bool_)
        records, _ = with_following(records, self.schema)
        return records, obeys if where is None else obeys & holds(where, records, self.schema)

    def weights(self, records: Records) -> Floats:
        """Return the product of each record's factors, trimmed."""
        weights = np.ones(records.rows)
        for table in (*self.tables, *self.margins):
            weights *= table.factors[table.cells(records)]
        return np.clip(weights, 1e-300, self.largest)

    def _select(
        self, records: Records, rows: int, generator: np.random.Generator, margins: Sequence[_Table]
    ) -> Ints:
        """Select records by weight (systematic sampling), in stages that correct the margins."""
        mass = self.weights(records)
        cells = [table.cells(records) for table in margins]
        chosen = np.zeros(0, dtype=np.int64)
        for part in np.cumsum(_STAGES if margins else (1.0,)):
            count = round(part * rows) - len(chosen)
            if len(chosen):
                mass[chosen] *= 1e-3  # prefer another record with the same cells to a duplicate
                left = [
                    np.maximum(rows * table.wanted - np.bincount(cell[chosen], minlength=len(table.wanted)), 0.0)
                    for table, cell in zip(margins, cells, strict=True)
                ]
                shares = [each / max(float(each.sum()), 1e-300) for each in left]
                for _ in range(5):
                    mass /= mass.sum()
                    for cell, share in zip(cells, shares, strict=True):
                        mass = mass * _ratio(cell, share, mass)[cell]
            ends = np.cumsum(mass)
            levels = (np.arange(count) + generator.random()) / max(count, 1) * ends[-1]
            places = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
            chosen = np.append(chosen, places)
        return generator.permutation(chosen)


def _repair(
    check: _Check,
    free: Sequence[str],
    wrong: Ints,
    rank: Mapping[str, Floats],
    codes: Mapping[str, Ints],
    source: Mapping[str, Ints],
    generator: np.random.Generator,
) -> None:
    """Change cells of the `wrong` rows in `codes` to values of `source`, until they obey a rule.

    Change the column with the highest rank first. If none of the values tried is accepted, change the next column.
    """
    columns = np.argsort([-rank[name][wrong] for name in free], axis=0)
    left = np.arange(len(wrong))
    for column in columns:
        for _ in range(_TRIES if left.size else 0):
            trial = {name: codes[name][wrong[left]] for name in check.columns}
            for k, name in enumerate(free):
                changed = np.flatnonzero(column[left] == k)
                values = source[name]
                trial[name][changed] = values[generator.integers(0, len(values), len(changed))]
            obeys = check.obeyed(Records(len(left), trial))
            for name in free:
                codes[name][wrong[left[obeys]]] = trial[name][obeys]
            left = left[~obeys]


def fit_support(sampler: Sampler, schema: Schema, rows: float, ignore: Iterable[int] = ()) -> Support:
    """Fit the model again, on the records that obey all rules but those with the ignored numbers.

    Refuse if no record of the pool obeys. The seed is fixed, so the result depends on the release alone.
    """
    ignored = set(ignore)
    for number in ignored:
        if not 1 <= number <= len(schema.rules):
            raise ConfigError(f"there is no rule {number} to ignore; the schema has {len(schema.rules)}")
        if isinstance(schema.rules[number - 1], Follows):
            raise ConfigError(f"rule {number} derives a column that was not learned; it cannot be ignored")
    numbers = [number for number in range(1, len(schema.rules) + 1) if number not in ignored]
    checks = tuple(check for number in numbers if (check := _Check.of(number, schema)) is not None)
    plain = Support(sampler, schema, checks)
    if not checks:
        return plain
    generator = np.random.default_rng(0)
    drawn = sampler.draw(int(np.clip(_TIMES * rows, _SMALLEST, _LARGEST)), generator)
    obeyed = np.array([check.obeyed(drawn) for check in checks])
    repaired = plain.repaired(drawn, generator)
    obeys = np.all([check.obeyed(repaired) for check in checks], axis=0)
    if not obeys.any():
        worst = min(checks, key=lambda check: int(check.obeyed(repaired).sum()))
        raise ConfigError(
            f"no record that the model draws obeys the rules; {worst} is broken most often: correct it, or leave "
            f"it out of sampling with --ignore-rule {worst.number} (the release stays valid, and sampling is free)"
        )
    pool = repaired.take(np.flatnonzero(obeys))
    margins = sorted(((_Values(column, drawn),) for column in schema.learned), key=lambda axes: axes[0].count)
    tables = _rake(drawn, pool, [*sampler.crossed, *margins])
    split = len(tables) - len(margins)
    support = replace(plain, tables=tuple(tables[:split]), margins=tuple(tables[split:]))
    mass = support.weights(pool)
    largest = float(np.quantile(mass, _TRIMMED))
    trimmed = np.minimum(mass, largest)
    mass /= mass.sum()
    return replace(
        support,
        largest=largest,
        # The fitted shares: if noisy margins contradict a rule, no pool can have the released ones.
        margins=tuple(
            replace(each, wanted=_shares(each.cells(pool), mass, len(each.wanted))) for each in support.margins
        ),
        broken=1 - float(obeyed.all(axis=0).mean()),
        pool=drawn.rows,
        effective=float(trimmed.sum() ** 2 / (trimmed**2).sum()),
        costliest=str(checks[int(np.argmin(obeyed.mean(axis=1)))]),
    )


def _rake(drawn: Records, pool: Records, crossed: Sequence[tuple[Axis, ...]]) -> list[_Table]:
    """Rake the pool to the tables of all drawn records: first to all tables, then to the histograms alone.

    Noisy histograms may contradict a rule. Then no pool fits all of them, and decreasing steps converge to a
    compromise.
    """
    tables, cells = [], []
    for axes in crossed:
        shape = tuple(axis.count for axis in axes)
        cell = _cells(axes, pool)
        wanted = np.bincount(_cells(axes, drawn), minlength=int(np.prod(shape))) / drawn.rows
        if len(shape) > 1:  # move the mass of impossible cells to others, and keep the margins
            whole, axis = wanted.reshape(shape), range(len(shape))
            margins = [whole.sum(axis=tuple(j for j in axis if j != i)) for i in axis]
            held = np.bincount(cell, minlength=len(wanted)).reshape(shape) > 0
            wanted = rake(whole * held, list(enumerate(margins)), passes=20).ravel()
        tables.append(_Table(axes, wanted, np.ones(len(wanted))))
        cells.append(cell)
    mass = np.full(pool.rows, 1 / pool.rows)
    for k in range(_PASSES + _LAST_PASSES):
        step = 1 / max(1, k - _FULL)
        for table, cell in zip(tables, cells, strict=True):
            if k < _PASSES or len(table.axes) == 1:
                ratio = _ratio(cell, table.wanted, mass) ** step
                table.factors[:] *= ratio
                mass = mass * ratio[cell]
        mass = mass / mass.sum()
    return tables


def _shares(cell: Int32s, mass: Floats, cells: int) -> Floats:
    return np.bincount(cell, mass, minlength=cells).astype(np.float64)


def _ratio(cell: Int32s, wanted: Floats, mass: Floats) -> Floats:
    """Return the factor that scales each cell to its target share; 1 for empty cells."""
    now = _shares(cell, mass, len(wanted))
    return np.where(now > 0, np.clip(wanted / np.maximum(now, 1e-300), 0.2, 5.0), 1.0)

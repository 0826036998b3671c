"""Open the tables to compare, check them against the schema, and derive halves and shuffled columns.

With `[person]` a release describes persons, not rows. Real tables are then reduced to as many random rows of each
person as count, so that every measure compares like with like.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from repsynth.arrays import Bools, Ints
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.fidelity import copied, fraction_repeated
from repsynth.evaluation.points import is_number, records_of
from repsynth.io.persons import shared_ids, some_rows
from repsynth.io.reading import AS_USUAL, ReadOptions
from repsynth.io.records import MISSING, Records
from repsynth.io.sources import check_columns, open_source
from repsynth.release.release import Release
from repsynth.schema import Discrete, Numeric, Person, Schema, check_unit

LEAST_ROWS = 20
_CHANCE = 4.0  # standard errors


@dataclass(frozen=True)
class Inputs:
    """The training, synthetic and held-out records, and the label.

    With `[person]`, `train` and `holdout` hold the rows that were drawn, and `all_rows` and `kept` say from what.
    """

    schema: Schema
    train: Records
    synthetic: Records
    holdout: Records | None = None
    label: str | None = None
    all_rows: Records | None = None
    """Every training row; None where `train` has all."""
    kept: Bools | None = None
    """Which of `all_rows` are in `train`."""
    shared: float = 0.0
    """The fraction of the holdout's rows whose person is also in the training table."""
    drawn_from: dict[str, int] = field(default_factory=dict)
    """How many rows each real table had before rows were drawn."""

    @classmethod
    def open(
        cls,
        train: Any,
        synthetic: Any,
        holdout: Any,
        schema: Schema,
        label: str | None = None,
        reading: ReadOptions = AS_USUAL,
    ) -> "Inputs":
        """Read the tables, the real ones by `reading`. Errors name the table."""
        if label is not None and label not in {column.name for column in schema.learned}:
            raise ConfigError(
                f"the label '{label}' is no column that the schema learns; name another with --label"
            )
        rows = replace(schema, person=None)  # a synthetic row is no person's
        records = {
            name: read_named(table, read_as, f"{name} table", how)
            for name, table, read_as, how in (
                ("training", train, schema, reading),
                ("synthetic", synthetic, rows, AS_USUAL),
                ("holdout", holdout, schema, reading),
            )
            if table is not None
        }
        for name, table in records.items():
            if table.rows < LEAST_ROWS:
                raise DataError(f"the {name} table has fewer than {LEAST_ROWS} rows; give one that has more")
        every, label = records["training"], label or schema.label
        if schema.person is None:
            return cls(schema, every, records["synthetic"], records.get("holdout"), label)
        real = {name: table for name, table in records.items() if name != "synthetic"}
        kept = {name: _drawn(table, schema.person, name) for name, table in real.items()}
        shared = 0.0
        if holdout is not None:
            ours, theirs = open_source(train, reading), open_source(holdout, reading)
            shared = float(shared_ids(ours, theirs, schema.person.column).mean())
        return cls(
            schema,
            every.take(kept["training"]),
            records["synthetic"],
            real["holdout"].take(kept["holdout"]) if "holdout" in real else None,
            label,
            all_rows=every,
            kept=kept["training"],
            shared=shared,
            drawn_from={name: table.rows for name, table in real.items()},
        )

    @property
    def compared_with(self) -> str:
        """With `[person]`, what the synthetic rows are compared with; empty where it is all real rows."""
        person = self.schema.person
        if person is None:
            return ""
        counts = ", ".join(
            f"{table.rows:,} of {self.drawn_from[name]:,} {name} rows"
            for name, table in (("training", self.train), ("holdout", self.holdout))
            if table is not None
        )
        rows = "one random row" if person.rows == 1 else f"at most {person.rows:,} random rows"
        return f"what persons are like: {rows} of each person in the real tables ({counts})"

    @cached_property
    def every(self) -> Schema:
        """The schema without a label, so that every column is a feature."""
        return replace(self.schema, label=None)

    @cached_property
    def features(self) -> Schema:
        """The schema with the label of this evaluation."""
        return replace(self.schema, label=self.label)

    @cached_property
    def label_column(self) -> Discrete | Numeric | None:
        return next((column for column in self.schema.learned if column.name == self.label), None)

    @cached_property
    def _median(self) -> float:
        column = self.label_column
        assert isinstance(column, Numeric)
        codes = self.train.codes[column.name]
        numbers = codes[is_number(column, codes)]
        return float(np.median(numbers)) if len(numbers) else 0.0

    def labels_of(self, records: Records) -> Ints:
        """Return the label of each record; for a numeric label, whether it is above the real median."""
        column = self.label_column
        assert column is not None
        codes = records.codes[column.name]
        if isinstance(column, Discrete):
            return codes
        return np.where(is_number(column, codes), (codes > self._median).astype(np.int64), MISSING)

    @property
    def label_names(self) -> tuple[str, ...]:
        column = self.label_column
        return column.values if isinstance(column, Discrete) else ("up to the median", "above the median")

    @cached_property
    def halves(self) -> tuple[Records, Records]:
        """Two random halves of the training records, the same every time."""
        generator = np.random.default_rng(0)
        order = generator.permutation(self.train.rows)
        if self.train.whose is not None:  # the rows of a person stay together
            who = np.unique(self.train.whose.places, return_inverse=True)[1]
            order = np.argsort(generator.permutation(self.train.rows)[who], kind="stable")
        middle = self.train.rows // 2
        return self.train.take(order[:middle]), self.train.take(order[middle:])

    @cached_property
    def independent(self) -> Records:
        """The training records with each column shuffled."""
        generator = np.random.default_rng(1)
        codes = {name: generator.permutation(codes) for name, codes in self.train.codes.items()}
        return Records(rows=self.train.rows, codes=codes)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.holdout is not None:
            overlap = overlapping(self.train, self.holdout) if self.all_rows is None else 0.0
            if self.shared:
                found.append(
                    f"{100 * self.shared:.1f} % of the holdout rows belong to persons of the training table: what "
                    "is measured on the holdout looks better than it is; give other persons"
                )
            if overlap:
                found.append(
                    f"about {100 * overlap:.0f} % of the holdout rows are training rows, too: what is measured on "
                    "the holdout looks better, and copies more usual, than they are; give rows that the release "
                    "was not made from"
                )
        for name, records in (("training", self.train), ("synthetic", self.synthetic), ("holdout", self.holdout)):
            empty = [c.name for c in self.schema.learned if records and (records.codes[c.name] == MISSING).all()]
            if empty:
                named = ", ".join(f"'{column}'" for column in empty)
                found.append(f"no cell of {named} in the {name} table can be read by the schema")
        return tuple(found)


def agreed_schema(schema: Schema | None, release: Release | None) -> Schema:
    """Return the given schema or that of the release; if both are given, they must agree."""
    if schema is None:
        if release is None:
            raise ConfigError("give the schema, or a release that holds it")
        return release.schema
    check_unit(schema)
    if release is not None and any(
        getattr(release.schema, name) != getattr(schema, name)
        for name in ("columns", "person", "one_row_per_person")
    ):
        raise ConfigError(
            "the schema is not the one that the release was made with; leave it out, or give that one"
        )
    return schema


def read_named(table: Any, schema: Schema, name: str, reading: ReadOptions = AS_USUAL) -> Records:
    """Encode a table. Errors name it."""
    try:
        source = open_source(table, reading)
        check_columns(source, schema)
        return records_of(source, schema)
    except DataError as error:
        raise DataError(f"the {name}: {error}") from None


def _drawn(records: Records, person: Person, name: str) -> Bools:
    """Draw the rows of each person that count, the same ones every time, without rows of factor 0."""
    assert records.whose is not None
    counts = records.whose.factors > 0
    kept = some_rows(records.whose.places, person.rows, np.random.default_rng(5)) & counts
    if np.count_nonzero(kept) < LEAST_ROWS:
        raise DataError(f"the {name} table has fewer than {LEAST_ROWS} persons; give one that has more")
    return kept


def overlapping(train: Records, holdout: Records) -> float:
    """Estimate the fraction of the holdout that are training rows; 0 where chance explains it.

    A fresh row equals some training row about as often as a training row equals another.

    >>> rows = Records(rows=1000, codes={"pay": np.arange(1000)})
    >>> overlapping(rows, rows.take(np.arange(100)))
    1.0
    """
    chance = fraction_repeated(train)
    found = float(copied(holdout, train).mean())
    error = np.sqrt(max(chance * (1 - chance), 1 / holdout.rows) * (1 / holdout.rows + 1 / train.rows))
    return (found - chance) / (1 - chance) if found > chance + _CHANCE * error else 0.0

"""The tables that are compared: opened, checked against the schema, and halved and shuffled for comparison."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.reading import AS_USUAL, Reading
from repsynth.data.records import MISSING, Records
from repsynth.data.sources import check_columns, open_source
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.coverage import copied, fraction_repeated
from repsynth.evaluation.matrix import is_number, records_of
from repsynth.release.release import Release
from repsynth.schema import Discrete, Numeric, Schema

LEAST_ROWS = 20
"""Fewer say nothing: a half of them is a handful."""

_CHANCE = 4.0  # standard errors


@dataclass(frozen=True)
class Inputs:
    """The training, the synthetic and, maybe, the held-out records; the label, where there is one."""

    schema: Schema
    train: Records
    synthetic: Records
    holdout: Records | None = None
    label: str | None = None

    @classmethod
    def open(
        cls,
        train: Any,
        synthetic: Any,
        holdout: Any,
        schema: Schema,
        label: str | None = None,
        reading: Reading = AS_USUAL,
    ) -> "Inputs":
        """Read the tables, the real ones as said; each error says which of them is wrong."""
        if label is not None and label not in {column.name for column in schema.learned}:
            raise ConfigError(
                f"the label '{label}' is no column that the schema learns; name another with --label"
            )
        records = {
            name: _read(table, schema, name, how)
            for name, table, how in (
                ("training", train, reading),
                ("synthetic", synthetic, AS_USUAL),
                ("holdout", holdout, reading),
            )
            if table is not None
        }
        return cls(
            schema, records["training"], records["synthetic"], records.get("holdout"), label or schema.label
        )

    @cached_property
    def every(self) -> Schema:
        """The schema in which every column is a feature."""
        return replace(self.schema, label=None)

    @cached_property
    def features(self) -> Schema:
        """The schema in which the label of this evaluation is the label."""
        return replace(self.schema, label=self.label)

    @cached_property
    def label_column(self) -> Discrete | Numeric | None:
        """The label's column."""
        return next((column for column in self.schema.learned if column.name == self.label), None)

    @cached_property
    def _median(self) -> float:
        column = self.label_column
        assert isinstance(column, Numeric)
        codes = self.train.codes[column.name]
        numbers = codes[is_number(column, codes)]
        return float(np.median(numbers)) if len(numbers) else 0.0

    def labels_of(self, records: Records) -> Ints:
        """The label of each record; of a numeric one, whether it is above the real median."""
        column = self.label_column
        assert column is not None
        codes = records.codes[column.name]
        if isinstance(column, Discrete):
            return codes
        return np.where(is_number(column, codes), (codes > self._median).astype(np.int64), MISSING)

    @property
    def label_names(self) -> tuple[str, ...]:
        """What the codes of labels stand for."""
        column = self.label_column
        return column.values if isinstance(column, Discrete) else ("up to the median", "above the median")

    @cached_property
    def halves(self) -> tuple[Records, Records]:
        """The training records in two halves, by chance and the same every time."""
        order = np.random.default_rng(0).permutation(self.train.rows)
        middle = self.train.rows // 2
        return self.train.take(order[:middle]), self.train.take(order[middle:])

    @cached_property
    def independent(self) -> Records:
        """The training records with each column shuffled on its own."""
        generator = np.random.default_rng(1)
        codes = {name: generator.permutation(codes) for name, codes in self.train.codes.items()}
        return Records(rows=self.train.rows, codes=codes)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the tables."""
        found = []
        if self.holdout is not None:
            overlap = overlapping(self.train, self.holdout)
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
    """The schema given, or the release's; where both are, they must agree."""
    if schema is None:
        if release is None:
            raise ConfigError("give the schema, or a release that holds it")
        return release.schema
    if release is not None and release.schema.columns != schema.columns:
        raise ConfigError(
            "the schema is not the one that the release was made with; leave it out, or give that one"
        )
    return schema


def _read(table: Any, schema: Schema, name: str, reading: Reading) -> Records:
    try:
        source = open_source(table, reading)
        check_columns(source, schema)
        records = records_of(source, schema)
    except DataError as error:
        raise DataError(f"the {name} table: {error}") from None
    if records.rows < LEAST_ROWS:
        raise DataError(f"the {name} table has fewer than {LEAST_ROWS} rows; give one that has more")
    return records


def overlapping(train: Records, holdout: Records) -> float:
    """The fraction of the holdout that seems to be training rows; 0 where it is what chance gives.

    By chance, a fresh row is equal to some training row about as often as a training row is to another.

    >>> rows = Records(rows=1000, codes={"pay": np.arange(1000)})
    >>> overlapping(rows, rows.take(np.arange(100)))
    1.0
    """
    chance = fraction_repeated(train)
    found = float(copied(holdout, train).mean())
    error = np.sqrt(max(chance * (1 - chance), 1 / holdout.rows) * (1 / holdout.rows + 1 / train.rows))
    return (found - chance) / (1 - chance) if found > chance + _CHANCE * error else 0.0


def as_binary(labels: Ints, positive: int) -> Floats:
    """1 for the records with this label, 0 for the others."""
    return np.where(labels == positive, 1.0, 0.0)

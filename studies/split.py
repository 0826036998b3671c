"""Split a public dataset by a seed (56 % training, 14 % validation, 30 % test) and measure on the parts."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.model_selection import train_test_split

from repsynth import datasets
from repsynth.arrays import Bools, Floats, Ints
from repsynth.evaluation.points import DECILES, Points, Space, advantage_of, deciles_of, nearest, outlyingness
from repsynth.evaluation.prediction import fit_logistic
from repsynth.schema import Schema


@dataclass(frozen=True)
class Split:
    """The three parts as points, and the first also as a table with its public schema."""

    schema: Schema
    table: pa.Table
    train: Points
    validation: Points
    test: Points


@lru_cache(maxsize=1)
def load_split(name: str, seed: int, data_dir: str | None) -> Split:
    """The split of a dataset that a seed makes, stratified by the label.

    >>> split = load_split("sim", 0, None)
    >>> len(split.train), len(split.validation), len(split.test)
    (3360, 840, 1800)
    """
    dataset = datasets.load(name, data_dir=data_dir)
    table = complete(dataset.table)
    points = points_of(table, dataset.schema)
    train, validation, test = split_rows(points.labels, seed)
    return Split(dataset.schema, table.take(train), points.take(train), points.take(validation), points.take(test))


def split_rows(labels: Ints, seed: int) -> tuple[Ints, Ints, Ints]:
    rest, test = train_test_split(np.arange(len(labels)), test_size=0.3, stratify=labels, random_state=seed)
    train, validation = train_test_split(rest, test_size=0.2, stratify=labels[rest], random_state=seed)
    return train, validation, test


def complete(table: pa.Table) -> pa.Table:
    """Without the records that have a "?", as the paper has Adult."""
    keep = pa.array(np.ones(table.num_rows, dtype=bool))
    for column in table.columns:
        if pa.types.is_string(column.type):
            keep = pc.and_(keep, pc.not_equal(column, "?"))
    return table.filter(keep)


@dataclass(frozen=True)
class Targets:
    """The records under attack: as many members as non-members, drawn alike, with common outlier deciles.

    The reference records that the attacker compares with are neither: they are the validation part.
    """

    space: Space
    places: Floats
    member: Bools
    deciles: Ints
    trained: Ints
    """Which training rows the members are, in the order of the targets."""
    to_reference: Floats
    """The distances of each to its nearest reference records."""

    @property
    def member_deciles(self) -> Ints:
        return self.deciles[self.member]


@lru_cache(maxsize=1)
def make_targets(name: str, seed: int, data_dir: str | None) -> Targets:
    """The targets of a split. The space is the reference's, so that it does not tell members either."""
    split = load_split(name, seed, data_dir)
    space = Space.of(split.validation)
    count = min(len(split.train), len(split.test))
    trained = np.sort(np.random.default_rng(seed).permutation(len(split.train))[:count])
    places = np.vstack([space.place(split.train.take(trained)), space.place(split.test)[:count]])
    return Targets(
        space=space,
        places=places,
        member=np.arange(2 * count) < count,
        deciles=deciles_of(outlyingness(places)),
        trained=trained,
        to_reference=nearest(places, space.place(split.validation)),
    )


@lru_cache(maxsize=1)
def train_outlyingness(name: str, seed: int, data_dir: str | None) -> Floats:
    """How far each training record lies from its nearest training records: what a scorer should find."""
    train = load_split(name, seed, data_dir).train
    return outlyingness(Space.of(train).place(train))


def points_of(table: pa.Table, schema: Schema) -> Points:
    """A table's features and labels; numbers must be complete."""
    features = [column for column in schema.discrete if column.name != schema.label]
    numbers = [table[column.name].to_numpy().astype(np.float64) for column in schema.numeric]
    codes = [_codes(table[column.name], column.values) for column in features]
    label = schema.label_column
    assert label is not None  # the four datasets have one
    rows = table.num_rows
    return Points(
        numbers=np.stack(numbers, axis=1) if numbers else np.zeros((rows, 0)),
        codes=np.stack(codes, axis=1) if codes else np.zeros((rows, 0), dtype=np.int64),
        labels=_codes(table[label.name], label.values),
        sizes=tuple(len(column.values) for column in features),
    )


def _codes(column: pa.ChunkedArray, values: tuple[str, ...]) -> Ints:
    found = pc.index_in(pc.cast(column, pa.string()), value_set=pa.array(values, pa.string()))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def advantage_by_decile(attack: Floats, member: Bools, deciles: Ints) -> list[float]:
    """The advantage within each decile."""
    return [advantage_of(attack[deciles == d], member[deciles == d]) for d in range(DECILES)]


def tstr(synthetic: Points, test: Points, space: Space | None = None) -> float:
    """AUROC on real records of logistic regression trained on synthetic ones; 0.5 where they have one label.

    It works in the space given, or in the one in which the synthetic records are standardised.
    """
    if len(set(synthetic.labels.tolist())) < 2:
        return 0.5
    return fit_logistic(synthetic, space).auroc(test)

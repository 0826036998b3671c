"""What the records lose: all of them, by decile of outlyingness, and who weighs less. PRIVATE."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.dossier import dossier
from repsynth.data.records import Records
from repsynth.errors import DataError, shown
from repsynth.evaluation.inputs import Inputs
from repsynth.evaluation.matrix import Fill, Space, points_of_records
from repsynth.evaluation.nearest import DECILES, deciles_of, outlyingness
from repsynth.evaluation.subgroups import LEAST, MOST_NEIGHBOURS, MOST_VALUES
from repsynth.privacy.shown import at_most, percent_at_most
from repsynth.release.release import Release
from repsynth.report.charts import BLUE, ORANGE, Chart, Line, dots, lines
from repsynth.scoring.weights import FULL

_MOST = 24  # subgroups that are drawn
_LOSSES = ("influence", "realised_epsilon", "guaranteed_epsilon")


@dataclass(frozen=True)
class RecordLosses:
    """Each training row's weight, and the influence and losses of its record, in the order of the table.

    With `[person]`, influence and losses are the person's, with all their rows.
    """

    person: Ints
    """The rows of one person have the same number; without `[person]` each row has its own."""
    weight: Floats
    influence: Floats
    realised: Floats
    guaranteed: Floats

    @classmethod
    def of(cls, release: Release, source: Any, train: Records, path: Path | None) -> "RecordLosses":
        """From a dossier of the same table and release or, without one, worked out."""
        table = dossier(source, release)[0] if path is None else _read(path, release, train)
        columns = [np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("weight", *_LOSSES)]
        several = release.schema.person is not None
        person = np.asarray(table["person"].to_numpy(), dtype=np.int64) if several else np.arange(train.rows)
        return cls(person, *columns)

    def take(self, rows: Ints | Bools) -> "RecordLosses":
        columns = [self.weight, self.influence, self.realised, self.guaranteed]
        return RecordLosses(self.person[rows], *(column[rows] for column in columns))

    def of_persons(self) -> "RecordLosses":
        """Keep one row of each person."""
        return self.take(np.unique(self.person, return_index=True)[1])


def _read(path: Path, release: Release, train: Records) -> pa.Table:
    try:
        table = pq.read_table(path)
        weight = np.asarray(table["weight"].to_numpy(), dtype=np.float64)
        person = () if release.schema.person is None else ("person",)
        whole = {*_LOSSES, *person} <= set(table.column_names)
    except (OSError, KeyError, pa.ArrowException):
        raise DataError(
            f"{shown(path)}: this is no dossier; repsynth risk writes one, or leave --dossier out"
        ) from None
    if not whole or not np.array_equal(weight, release.weights.of(release.score.of(train)) / FULL):
        raise DataError(
            f"{path}: this is the dossier of another table or release; make one with repsynth risk, or leave "
            "--dossier out"
        )
    return table


def spread(losses: RecordLosses, release: Release) -> Chart:
    """Draw which part of the records, or persons, loses at most how much; `losses` has each of them once."""
    who = "records" if release.schema.person is None else "persons"
    levels = np.linspace(0.0, 1.0, 101)
    drawn = [
        Line(
            name,
            list(zip(_quantiles(values, levels), levels.tolist(), strict=True)),
            colour,
            dashed=dash,
        )
        for name, values, colour, dash in (
            ("realised", losses.realised, BLUE, False),
            ("guaranteed", losses.guaranteed, ORANGE, True),
        )
    ]
    parts = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
    both = (_quantiles(values, parts) for values in (losses.realised, losses.guaranteed))
    rows = [(f"{part:.0%}", at_most(a, 3), at_most(b, 3)) for part, a, b in zip(parts, *both, strict=True)]
    below = float(np.mean(losses.guaranteed < release.privacy.epsilon))
    return lines(
        f"What the {who} lose",
        f"Half of them lose ε = {rows[3][1]} at most, a tenth {rows[1][1]} at most (realised: in the joint sense "
        f"of the release's page). What was guaranteed before the run is less than the whole for {below:.0%}.",
        (f"part of the {who}", "realised ε at most", "guaranteed ε at most"),
        rows,
        drawn=drawn,
        x="ε at most",
        y=f"part of the {who}",
        percent=True,
    )


def _quantiles(values: Floats, levels: Floats) -> list[float]:
    """Losses that some record has, so that none is between two."""
    found: list[float] = np.quantile(values, levels, method="inverted_cdf").tolist()
    return found


def deciles_of_records(inputs: Inputs) -> tuple[Ints, Ints]:
    """Some training records, spread over the table, and their deciles of outlyingness among each other."""
    count = min(inputs.train.rows, MOST_NEIGHBOURS)
    chosen = np.arange(count) * inputs.train.rows // count
    some, schema = inputs.train.take(chosen), inputs.every
    points = points_of_records(some, schema, Fill.of(some, schema), np.zeros(count, dtype=np.int64))
    return chosen, deciles_of(outlyingness(Space.of(points).place(points)))


def by_decile(losses: RecordLosses, release: Release, chosen: Ints, deciles: Ints) -> Chart:
    """The best attack that the account leaves, at the weights of this release."""
    gain = release.privacy.loss.advantage_at(losses.influence[chosen])
    found = [gain[deciles == d] for d in range(DECILES)]
    means = [float(each.mean()) for each in found]
    intervals = [(float(np.quantile(each, 0.1)), float(np.quantile(each, 0.9))) for each in found]
    most = release.privacy.advantage
    unit = "record" if release.schema.person is None else "person"
    points = [(float(d + 1), mean) for d, mean in enumerate(means)]
    rows = [
        (str(d + 1), percent_at_most(mean), f"{percent_at_most(low)} to {percent_at_most(high)}")
        for d, (mean, (low, high)) in enumerate(zip(means, intervals, strict=True))
    ]
    return lines(
        "The best attack, by decile of outlyingness",
        f"What the account leaves to the best attack on this release's measurements, with its weights held fixed: "
        f"{rows[0][1]} above guessing in the most ordinary tenth, {rows[-1][1]} in the most outlying one; on a "
        f"{unit} of full weight {percent_at_most(most)}. Bars: from the 10 % to the 90 % quantile of a tenth.",
        ("decile", "mean advantage", "10 % to 90 % quantile"),
        rows,
        drawn=[
            Line("full weight", [(1.0, most), (10.0, most)], BLUE, dashed=True),
            Line("this release", points, ORANGE, intervals, marked=True),
        ],
        x="decile of outlyingness (10: the most outlying)",
        y="advantage over guessing",
        percent=True,
    )


def who_weighs_less(losses: RecordLosses, inputs: Inputs) -> Chart | None:
    """The subgroups of discrete columns by how many of them weigh less than 1."""
    less, rows = losses.weight < 1, "records" if inputs.schema.person is None else "rows"
    whole, found = float(less.mean()), []
    for column in inputs.every.discrete:
        if column.size > MOST_VALUES:
            continue
        for code, value in enumerate(column.values):
            inside = inputs.train.codes[column.name] == code
            if (count := int(inside.sum())) >= LEAST:
                part = float(less[inside].mean())
                error = 1.96 * float(np.sqrt(max(part * (1 - part), 1 / count) / count))
                found.append((f"{column.name} = {value}", count, part, error, float(losses.weight[inside].mean())))
    if not found or not less.any():
        return None
    found.sort(key=lambda group: -group[2])
    shown = found if len(found) <= _MOST else [*found[: _MOST - 6], *found[-6:]]
    return dots(
        "Who weighs less",
        f"{whole:.0%} of all {rows} weigh less than 1: {shown[0][2]:.0%} of {shown[0][0]}, {shown[-1][2]:.0%} of "
        f"{shown[-1][0]}. What only they show, the synthetic table shows less well."
        + (
            f" Drawn are {len(shown)} of {len(found)} subgroups, the most and the least; the table has all."
            if len(shown) < len(found)
            else ""
        ),
        ("subgroup", rows, "weigh less than 1", "mean weight"),
        [
            (name, f"{count:,}", f"{part:.1%} ± {percent_at_most(error)}", f"{mean:.3f}")
            for name, count, part, error, mean in found
        ],
        names=[name for name, *_ in shown],
        values=[part for _, _, part, _, _ in shown],
        low=[part - error for _, _, part, error, _ in shown],
        high=[part + error for _, _, part, error, _ in shown],
        axis="part of the subgroup that weighs less than 1, with its 95 % interval",
        at=(whole, f"all {rows}"),
        room=190,
    )

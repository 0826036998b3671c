"""The facts and charts of the curator's page: real against synthetic, what was lost, and who could be found.

PRIVATE: computed from the training data; nothing of it goes into the public page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import repsynth
from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.results import BEST, REPS, UNIFORM, Exposure
from repsynth.curator.dossier import dossier
from repsynth.errors import DataError, shown
from repsynth.evaluation.evaluate import Evaluation, evaluate_tables, read_evaluation
from repsynth.evaluation.export import GROUP_HEADERS, MEASURE_HEADERS, STAMP, Measure, group_row, measure_row
from repsynth.evaluation.fidelity import Grid
from repsynth.evaluation.inputs import Inputs
from repsynth.evaluation.points import DECILES, Fill, Space, deciles_of, outlyingness, points_of_records
from repsynth.evaluation.subgroups import LEAST, MOST_NEIGHBOURS, MOST_VALUES, Subgroup
from repsynth.io.records import MISSING, Records
from repsynth.privacy.formatting import percent_lower, percent_upper, upper
from repsynth.release.accuracy import value_name
from repsynth.release.release import Release
from repsynth.report.charts import BLUE, ORANGE, Chart, Line, Row, bars, heat, lines
from repsynth.schema import Discrete, Numeric
from repsynth.scoring.weights import FULL, Targeted, make_weights

OUTLIER_WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_GOOD, _FAIR = 0.1, 0.5  # parts of the way from two real halves to independent columns
_DECILE, _ADVANTAGE = "decile of outlyingness (10: the most outlying)", "advantage over guessing"


@dataclass(frozen=True)
class CuratorFacts:
    """The contents of the page."""

    stamp: str
    release_publishable: bool
    epsilon: str
    delta: str
    outliers: str | None
    rows: str
    compared_with: str
    warnings: tuple[str, ...]
    group_warnings: tuple[str, ...]
    measures: tuple[Row, ...]
    left_out: dict[str, str]
    columns: list[Chart]
    pairs: list[Chart]
    verdict: tuple[tuple[str, str], ...]
    subgroups: Chart
    spread: Chart
    attack: Chart
    attacks_made: Chart | None
    attack_notes: tuple[str, ...]
    who: Chart | None
    costs: Chart | None
    version: str


def curator_facts(
    release: Release,
    train: Any,
    holdout: Any = None,
    attack: Path | None = None,
    evaluated: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> CuratorFacts:
    exposure = None if attack is None else read_exposure(attack)
    on_step("reading")
    inputs = Inputs.open(train, release.sample(seed=0), holdout, release.schema)  # the same rows whenever asked
    if evaluated is None:
        evaluation = evaluate_tables(inputs, release, on_step)
    else:
        evaluation = _read_evaluation(evaluated, inputs)
    on_step("losses")
    whole = RecordLosses.of(release, train)
    losses = whole if inputs.kept is None else whole.take(inputs.kept)
    on_step("drawing")
    found = {measure.name: measure.breakdown for measure in evaluation.measures}
    privacy = release.privacy
    return CuratorFacts(
        stamp=STAMP,
        release_publishable=release.publishable,
        epsilon=upper(privacy.epsilon),
        delta=upper(privacy.delta, 3),
        outliers=None if release.threshold is None else upper(privacy.outlier_epsilon),
        rows=", ".join(f"{count:,} {name}" for name, count in evaluation.rows.items()),
        compared_with=evaluation.compared_with,
        warnings=inputs.warnings,
        group_warnings=tuple(text for text in evaluation.warnings if text not in inputs.warnings),
        measures=(MEASURE_HEADERS, *map(measure_row, evaluation.measures)),
        left_out=evaluation.left_out,
        columns=columns_side_by_side(inputs, found.get("one-way distance", {})),
        pairs=pairs_side_by_side(inputs, evaluation.associations, found.get("two-way distance", {})),
        verdict=_verdict(evaluation.measures),
        subgroups=_subgroups([*evaluation.deciles, *evaluation.subgroups]),
        spread=_spread(whole.of_persons(), release),
        attack=_by_decile(losses, release, inputs),
        attacks_made=None if exposure is None else _attacks(exposure),
        attack_notes=()
        if exposure is None
        else tuple(_differences(exposure, release, len(whole.of_persons().weight))),
        who=_who_weighs_less(losses, inputs),
        costs=None if release.threshold is None else _costs(release, inputs),
        version=repsynth.__version__,
    )


def _verdict(measures: Sequence[Measure]) -> tuple[tuple[str, str], ...]:
    """Sort measures by how far they are on the way from two real halves to independent columns.

    A measure without a value for independent columns is left out, unless it is as near as two real halves.
    """
    found: dict[str, list[str]] = {"good": [], "fair": [], "poor": []}
    for measure in measures:
        gap, floor, whole = (
            abs((v or 0.0) - measure.best) for v in (measure.value, measure.floor, measure.independent)
        )
        if measure.floor is None:
            continue
        if measure.independent is None:
            if gap <= floor:
                found["good"].append(measure.name)
        elif whole > floor:
            way = (gap - floor) / (whole - floor)
            found["good" if way <= _GOOD else "fair" if way <= _FAIR else "poor"].append(measure.name)
    words = {
        "good": "like real rows, or nearly",
        "fair": "between real rows and independent columns",
        "poor": "not much better than independent columns",
    }
    return tuple((words[name], "; ".join(names)) for name, names in found.items() if names)


def _subgroups(groups: Sequence[Subgroup]) -> Chart:
    """Draw the part of the rows in each subgroup. Those that pay more or are too few come first."""
    ordered = sorted(
        groups,
        key=lambda group: (
            not (group.pays_more or group.too_few),
            -(group.extra or 0.0),
            group.fraction_synthetic - group.fraction_real,
        ),
    )
    return bars(
        "Who pays",
        "Blue: part of the real rows, orange: of the synthetic ones.",
        (*GROUP_HEADERS[:-1], "remark"),
        [group_row(group) for group in ordered],
        values=[group.fraction_real for group in ordered],
        others=[group.fraction_synthetic for group in ordered],
    )


def read_exposure(folder: Path) -> Exposure:
    try:
        return msgspec.json.decode((folder / "exposure.json").read_bytes(), type=Exposure)
    except (OSError, msgspec.MsgspecError):
        raise DataError(
            f"{shown(folder)}: holds no result of an attack; run repsynth attack -o {shown(folder)} to its end"
        ) from None


def _read_evaluation(folder: Path, inputs: Inputs) -> Evaluation:
    """Read the folder of an evaluation of these tables."""
    evaluation = read_evaluation(folder)
    rows = {"training": inputs.train.rows, "synthetic": inputs.synthetic.rows}
    rows |= {"holdout": inputs.holdout.rows} if inputs.holdout else {}
    if evaluation.rows != rows:
        raise DataError(
            f"{shown(folder)}: evaluates tables with other numbers of rows; give the tables of that evaluation"
        )
    return evaluation


def _differences(exposure: Exposure, release: Release, targets: int) -> list[str]:
    """Say whether the plan that was attacked is this release's; `targets` are the rows or persons of its table."""
    notes = list(exposure.notes)
    plan = release.plan
    same = (exposure.model, exposure.rows) == (plan.model.name, targets)
    if not same or abs(exposure.epsilon - plan.budget.epsilon) > 1e-6 * plan.budget.epsilon:
        unit = "rows" if release.schema.person is None else "persons"
        notes.append(
            f"The attacks were made on another plan than this release's: {exposure.model}, ε = "
            f"{upper(exposure.epsilon)}, {exposure.rows:,} {unit}."
        )
    if exposure.exceeded:
        notes.append("An attack proved MORE THAN IS CLAIMED: repsynth attack says which. Publish nothing.")
    return notes


def _attacks(exposure: Exposure) -> Chart:
    """Draw the strongest attack on each decile, with its interval."""
    drawn, rows = [], []
    for method, name, colour in ((UNIFORM, "uniform weights", BLUE), (REPS, "REPS", ORANGE)):
        made = [
            line
            for line in exposure.lines
            if line.method == method and line.decile is not None and line.attack != BEST
        ]
        strongest = [
            max((line for line in made if line.decile == decile), key=lambda line: line.advantage.value)
            for decile in sorted({line.decile for line in made if line.decile is not None})
        ]
        if not strongest:
            continue
        points = [(float(line.decile or 0), line.advantage.value) for line in strongest]
        intervals = [(line.advantage.low, line.advantage.high) for line in strongest]
        drawn.append(Line(name, points, colour, intervals, marked=True, dashed=method == UNIFORM))
        rows += [
            (f"{line.decile}, {name}", line.attack, percent_upper(line.advantage.value),
             f"{percent_lower(line.advantage.low)} to {percent_upper(line.advantage.high)}", line.verdict)
            for line in strongest
        ]  # fmt: skip
    return lines(
        "Attacks that were made, by decile of outlyingness",
        f"The strongest of them in each tenth, on {exposure.targets} {exposure.unit} in {exposure.runs} runs; the "
        f"strongest of many looks stronger than it is. Bars: {exposure.confidence:.0%} intervals.",
        ("decile", "attack", "advantage", "interval", "in words"),
        rows,
        drawn=drawn,
        x=_DECILE,
        y=_ADVANTAGE,
        percent=True,
    )


@dataclass(frozen=True)
class RecordLosses:
    """The weight, influence and losses of each training row, in the order of the table.

    With `[person]`, influence and losses are those of the person with all their rows.
    """

    person: Ints
    """The rows of one person have the same number; without `[person]` each row has its own."""
    weight: Floats
    influence: Floats
    realised: Floats
    guaranteed: Floats

    @classmethod
    def of(cls, release: Release, source: Any) -> "RecordLosses":
        table = dossier(source, release)[0]
        names = ("weight", "influence", "realised_epsilon", "guaranteed_epsilon")
        columns = [np.asarray(table[name].to_numpy(), dtype=np.float64) for name in names]
        several = release.schema.person is not None
        person = np.asarray(table["person"].to_numpy(), dtype=np.int64) if several else np.arange(len(table))
        return cls(person, *columns)

    def take(self, rows: Ints | Bools) -> "RecordLosses":
        columns = [self.weight, self.influence, self.realised, self.guaranteed]
        return RecordLosses(self.person[rows], *(column[rows] for column in columns))

    def of_persons(self) -> "RecordLosses":
        """Keep one row of each person."""
        return self.take(np.unique(self.person, return_index=True)[1])


def _spread(losses: RecordLosses, release: Release) -> Chart:
    """Draw the distribution of the losses; `losses` holds each record or person once."""
    who = "records" if release.schema.person is None else "persons"
    levels = np.linspace(0.0, 1.0, 101)
    drawn = [
        Line(name, list(zip(_quantiles(values, levels), levels.tolist(), strict=True)), colour, dashed=dash)
        for name, values, colour, dash in (
            ("realised", losses.realised, BLUE, False),
            ("guaranteed", losses.guaranteed, ORANGE, True),
        )
    ]
    parts = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
    both = (_quantiles(values, parts) for values in (losses.realised, losses.guaranteed))
    rows = [(f"{part:.0%}", upper(a, 3), upper(b, 3)) for part, a, b in zip(parts, *both, strict=True)]
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
    """Return quantiles without interpolation: each is the loss of some record."""
    found: list[float] = np.quantile(values, levels, method="inverted_cdf").tolist()
    return found


def _by_decile(losses: RecordLosses, release: Release, inputs: Inputs) -> Chart:
    """Draw the best attack that the account allows at the weights of this release."""
    count = min(inputs.train.rows, MOST_NEIGHBOURS)
    chosen = np.arange(count) * inputs.train.rows // count
    some, schema = inputs.train.take(chosen), inputs.every
    points = points_of_records(some, schema, Fill.of(some, schema), np.zeros(count, dtype=np.int64))
    deciles = deciles_of(outlyingness(Space.of(points).place(points)))
    gain = release.privacy.loss.advantage_at(losses.influence[chosen])
    found = [gain[deciles == d] for d in range(DECILES)]
    means = [float(each.mean()) for each in found]
    curve = [(d + 1.0, mean) for d, mean in enumerate(means)]
    intervals = [(float(np.quantile(each, 0.1)), float(np.quantile(each, 0.9))) for each in found]
    most = release.privacy.advantage
    unit = "record" if release.schema.person is None else "person"
    rows = [
        (str(d + 1), percent_upper(mean), f"{percent_upper(low)} to {percent_upper(high)}")
        for d, (mean, (low, high)) in enumerate(zip(means, intervals, strict=True))
    ]
    return lines(
        "The best attack, by decile of outlyingness",
        f"What the account leaves to the best attack on this release's measurements, with its weights held fixed: "
        f"{rows[0][1]} above guessing in the most ordinary tenth, {rows[-1][1]} in the most outlying one; on a "
        f"{unit} of full weight {percent_upper(most)}. Bars: from the 10 % to the 90 % quantile of a tenth.",
        ("decile", "mean advantage", "10 % to 90 % quantile"),
        rows,
        drawn=[
            Line("full weight", [(1.0, most), (10.0, most)], BLUE, dashed=True),
            Line("this release", curve, ORANGE, intervals, marked=True),
        ],
        x=_DECILE,
        y=_ADVANTAGE,
        percent=True,
    )


def _who_weighs_less(losses: RecordLosses, inputs: Inputs) -> Chart | None:
    """Draw the subgroups of discrete columns by the fraction of their rows that weigh less than 1."""
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
    (most, *_), (least, *_) = found[0], found[-1]
    return bars(
        "Who weighs less",
        f"{whole:.0%} of all {rows} weigh less than 1: {found[0][2]:.0%} of {most}, {found[-1][2]:.0%} of {least}."
        " What only they show, the synthetic table shows less well. Lines: 95 % intervals.",
        ("subgroup", rows, "weigh less than 1", "mean weight"),
        [
            (name, f"{count:,}", f"{part:.1%} ± {percent_upper(error)}", f"{mean:.3f}")
            for name, count, part, error, mean in found
        ],
        values=[part for _, _, part, _, _ in found],
        low=[part - error for _, _, part, error, _ in found],
        high=[part + error for _, _, part, error, _ in found],
        full=1.0,
    )


def _costs(release: Release, inputs: Inputs) -> Chart:
    """Draw what other outlier weights would have cost, with the released scores and threshold."""
    assert release.threshold is not None
    threshold, scores = release.threshold.value, release.score.of(inputs.train)
    tables = [Cells.of(column, inputs.train, inputs.synthetic) for column in inputs.schema.learned]
    largest, lost, moved, rows = [], [], [], []
    for weight in OUTLIER_WEIGHTS:
        made = make_weights(Targeted(weight), threshold=threshold, lowest=release.score.lowest)
        weights = made.of(scores) / FULL
        above = weights[scores >= threshold]
        # A hundred weights represent all: losses of a training are slow.
        some = np.quantile(above, np.linspace(0, 1, 101)) if len(above) else np.zeros(1)
        epsilons = release.privacy.epsilon_at(some)
        largest.append(float(epsilons.max()))
        lost.append(1 - float(weights.mean()))
        moved.append(float(np.mean([cells.moved(weights) for cells in tables])))
        median = upper(float(np.median(epsilons)), 3)
        rows.append((f"weight {weight:g}", upper(largest[-1], 3), median, f"{lost[-1]:.1%}", f"{moved[-1]:.2%}"))
    now = 1 - float(np.mean(release.weights.of(scores) / FULL))
    return lines(
        "What a smaller loss of the outliers costs",
        f"At most ε = {rows[0][1]} for outliers takes {lost[0]:.0%} of all weight from the model and moves a "
        f"column by {moved[0]:.1%} on average, noise apart; this release takes {now:.0%}. "
        "The ε of a row may be asked for with --outlier-epsilon.",
        ("setting", "outliers' ε at most", "their median ε", "weight lost", "columns moved by"),
        rows,
        drawn=[Line("", list(zip(largest, lost, strict=True)))],
        x="outliers' ε at most",
        y="part of all weight that is lost",
        at=[(release.privacy.outlier_epsilon, "this release")],
        percent=True,
    )


CELLS = 12  # values and ranges of a column; rarer values are merged
FEW_CELLS = 6  # the same in a table of two columns
PAIRS = 8
_OWN = 0.1  # a number that this fraction of the records has gets its own cell


@dataclass(frozen=True)
class Cells:
    """The names of the values and ranges of a column, and the cell of each record."""

    names: tuple[str, ...]
    real: Ints
    synthetic: Ints

    @classmethod
    def of(cls, column: Discrete | Numeric, real: Records, synthetic: Records, most: int = CELLS) -> "Cells":
        codes = [records.codes[column.name] for records in (real, synthetic)]
        names, (a, b) = (
            _numbers(column, codes, most) if isinstance(column, Numeric) else _values(column, codes, most)
        )
        there = np.flatnonzero(np.bincount(np.concatenate([a, b]), minlength=len(names)))
        place = np.zeros(len(names), dtype=np.int64)
        place[there] = np.arange(len(there))
        return cls(tuple(names[i] for i in there), place[a], place[b])

    def fractions(self) -> tuple[Floats, Floats]:
        """Return the fractions of the real and of the synthetic records in each cell."""
        size = len(self.names)
        real, made = (np.bincount(cells, minlength=size) / len(cells) for cells in (self.real, self.synthetic))
        return real, made

    def moved(self, weights: Floats) -> float:
        """Return the total variation distance of the weighted from the unweighted real records."""
        if not weights.any():
            return 1.0
        weighted = np.bincount(self.real, weights, minlength=len(self.names)) / weights.sum()
        return float(np.abs(weighted - self.fractions()[0]).sum() / 2)


def _values(column: Discrete, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """Return cells for the most frequent values, for all others, and for missing."""
    counts = np.bincount(codes[0][codes[0] != MISSING], minlength=column.size)
    shown = np.argsort(-counts, kind="stable")[: most - 1 if column.size > most else most]
    place = np.full(column.size + 1, len(shown), dtype=np.int64)
    place[shown] = np.arange(len(shown))
    place[-1] = len(shown) + 1  # what MISSING picks
    others = "all others" if column.size > most else ""
    return [*(column.values[i] for i in shown), others, "missing"], [place[each] for each in codes]


def _numbers(column: Numeric, codes: Sequence[Ints], most: int) -> tuple[list[str], list[Ints]]:
    """Return cells for frequent numbers, ranges of equally many real records, special codes and missing."""
    numbers = codes[0][(codes[0] != MISSING) & (codes[0] <= column.steps)]
    values, counts = np.unique(numbers, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: most // 3]
    own = np.sort(values[frequent[counts[frequent] >= _OWN * len(codes[0])]])
    rest = numbers[~np.isin(numbers, own)]
    ranges = most - len(own)
    levels = np.arange(1, ranges) / ranges
    ends = np.unique(np.quantile(rest, levels, method="inverted_cdf")).astype(np.int64) if len(rest) else own[:0]
    grid = Grid(column.steps, own, ends)
    # The cells of the grid are missing, own values, ranges and special codes; order them by their start.
    starts = [-1, *own.tolist(), *(e + 1 for e in [-1, *ends.tolist()])]
    last = [*ends.tolist(), column.steps]
    names = ["missing", *(value_name(column, position) for position in own.tolist())]
    alone = set(own.tolist())
    names += [_range(column, first, end, alone) for first, end in zip(starts[1 + len(own) :], last, strict=True)]
    order = [
        *(1 + np.argsort(np.array(starts[1:]), kind="stable")),
        *range(len(names), len(names) + len(column.special)),
        0,
    ]
    place = np.empty(len(order), dtype=np.int64)
    place[np.array(order)] = np.arange(len(order))
    names += column.special
    return [names[i] for i in order], [place[grid.of(each)] for each in codes]


def _range(column: Numeric, first: int, last: int, alone: set[int]) -> str:
    """Name a range without the numbers at its ends that have their own cell."""
    while first < last and first in alone:
        first += 1
    while first < last and last in alone:
        last -= 1
    one, other = value_name(column, first), value_name(column, last)
    return one if first == last else f"{one} to {other}"


def columns_side_by_side(inputs: Inputs, distances: dict[str, float]) -> list[Chart]:
    """Draw each column, the one with the largest distance first."""
    order = sorted(inputs.schema.learned, key=lambda column: -distances[column.name])
    return [_column(column, inputs, distances[column.name]) for column in order]


def _column(column: Discrete | Numeric, inputs: Inputs, distance: float) -> Chart:
    cells = Cells.of(column, inputs.train, inputs.synthetic)
    real, made = cells.fractions()
    chance = 1.96 * np.sqrt(real * (1 - real) * (1 / len(cells.real) + 1 / len(cells.synthetic)))
    worst = int(np.argmax(np.abs(real - made)))
    return bars(
        column.name,
        f"{distance:.1%} of the rows would have to change. Farthest: {cells.names[worst]}, {real[worst]:.1%} of "
        f"the real and {made[worst]:.1%} of the synthetic rows.",
        ("value or range", "real", "synthetic"),
        [(n, f"{r:.2%}", f"{m:.2%}") for n, r, m in zip(cells.names, real, made, strict=True)],
        values=real.tolist(),
        others=made.tolist(),
        low=(real - chance).tolist(),
        high=(real + chance).tolist(),
    )


def pairs_side_by_side(
    inputs: Inputs, associations: dict[str, dict[str, float]], distances: dict[str, float]
) -> list[Chart]:
    """Draw the pairs of columns with the strongest association in the real table."""
    pairs = {f"{a.name} × {b.name}": (a, b) for a, b in combinations(inputs.schema.learned, 2)}
    known = {name: value for name, value in associations["real"].items() if not np.isnan(value)}
    strongest = sorted(known, key=lambda name: -abs(known[name]))[:PAIRS]
    return [
        _pair(name, *pairs[name], inputs, (known[name], associations["synthetic"][name]), distances[name])
        for name in strongest
    ]


def _pair(
    name: str,
    one: Discrete | Numeric,
    two: Discrete | Numeric,
    inputs: Inputs,
    association: tuple[float, float],
    distance: float,
) -> Chart:
    up, across = (Cells.of(column, inputs.train, inputs.synthetic, FEW_CELLS) for column in (one, two))
    real, made = (
        _crossed(a, b, len(up.names), len(across.names))
        for a, b in ((up.real, across.real), (up.synthetic, across.synthetic))
    )
    kept = "cannot be told" if np.isnan(association[1]) else f"{association[1]:.2f}"
    return heat(
        name,
        f"Association {association[0]:.2f} in the real table, {kept} in the synthetic one; {distance:.1%} of the "
        "rows would have to change. Stronger colour: more rows.",
        ("values", "real", "synthetic"),
        [
            (f"{a} and {b}", f"{real[i, j]:.2%}", f"{made[i, j]:.2%}")
            for i, a in enumerate(up.names)
            for j, b in enumerate(across.names)
        ],
        across=across.names,
        up=up.names,
        panels=[("real", real.tolist()), ("synthetic", made.tolist())],
    )


def _crossed(one: Ints, two: Ints, rows: int, columns: int) -> Floats:
    counts = np.bincount(one * columns + two, minlength=rows * columns).reshape(rows, columns)
    return np.asarray(counts / max(len(one), 1))

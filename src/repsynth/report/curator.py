"""What the curator's page says: what was lost, by whom, and who could be found. PRIVATE, all of it: it is computed
from the training data, and nothing of it goes into the public page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import repsynth
from repsynth.attacks.exposure import BEST, REPS, UNIFORM, Exposure
from repsynth.errors import DataError, shown
from repsynth.evaluation.evaluate import Evaluation, evaluate_tables
from repsynth.evaluation.inputs import Inputs
from repsynth.evaluation.measures import STAMP
from repsynth.evaluation.written import GROUP_HEADERS, group_row, numbers_of_measure
from repsynth.privacy.shown import at_most, percent_at_least, percent_at_most
from repsynth.release.release import Release
from repsynth.report.charts import BLUE, ORANGE, Chart, Line, lines
from repsynth.report.other_settings import HEAD, other_settings
from repsynth.report.record_losses import RecordLosses, by_decile, deciles_of_records, spread, who_weighs_less
from repsynth.report.side_by_side import columns_side_by_side, pairs_side_by_side

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Numbers without a picture."""

    title: str
    head: Row
    rows: tuple[Row, ...]


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
    measures: Table
    left_out: dict[str, str]
    columns: list[Chart]
    pairs: list[Chart]
    subgroups: Table
    spread: Chart
    attack: Chart
    attacks_made: Chart | None
    attack_notes: tuple[str, ...]
    who: Chart | None
    costs: Chart | None
    gammas: Table | None
    version: str


def curator_facts(
    release: Release,
    train: Any,
    holdout: Any = None,
    dossier: Path | None = None,
    attack: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> CuratorFacts:
    exposure = None if attack is None else read_exposure(attack)
    on_step("reading")
    inputs = Inputs.open(train, release.sample(seed=0), holdout, release.schema)  # the same rows whenever asked
    evaluation = evaluate_tables(inputs, release, on_step)
    on_step("losses")
    whole = RecordLosses.of(release, train, inputs.all_rows or inputs.train, dossier)
    losses = whole if inputs.kept is None else whole.take(inputs.kept)
    chosen, deciles = deciles_of_records(inputs)
    on_step("drawing")
    costs = other_settings(release, inputs)
    found = {measure.name: measure.breakdown for measure in evaluation.measures}
    privacy = release.privacy
    return CuratorFacts(
        stamp=STAMP,
        release_publishable=release.publishable,
        epsilon=at_most(privacy.epsilon),
        delta=at_most(privacy.delta, 3),
        outliers=None if release.threshold is None else at_most(privacy.outlier_epsilon),
        rows=", ".join(f"{count:,} {name}" for name, count in evaluation.rows.items()),
        compared_with=evaluation.compared_with,
        warnings=evaluation.warnings,
        measures=_measures(evaluation),
        left_out=evaluation.left_out,
        columns=columns_side_by_side(inputs, found["one-way distance"]),
        pairs=pairs_side_by_side(inputs, evaluation.associations, found.get("two-way distance", {})),
        subgroups=Table(
            "Who pays", GROUP_HEADERS, tuple(map(group_row, [*evaluation.deciles, *evaluation.subgroups]))
        ),
        spread=spread(whole.of_persons(), release),
        attack=by_decile(losses, release, chosen, deciles),
        attacks_made=None if exposure is None else _attacks(exposure),
        attack_notes=()
        if exposure is None
        else tuple(_differences(exposure, release, len(whole.of_persons().weight))),
        who=who_weighs_less(losses, inputs),
        costs=costs and costs[0],
        gammas=costs and Table("Weights that fall with the score", HEAD, tuple(cost.row for cost in costs[1])),
        version=repsynth.__version__,
    )


def _measures(evaluation: Evaluation) -> Table:
    head = ("measure", "value", "best", "two real halves", "independent columns", "in words")
    rows = tuple((m.name, *numbers_of_measure(m), m.words) for m in evaluation.measures)
    return Table("What the synthetic table is good for", head, rows)


def read_exposure(folder: Path) -> Exposure:
    try:
        return msgspec.json.decode((folder / "exposure.json").read_bytes(), type=Exposure)
    except (OSError, msgspec.MsgspecError):
        raise DataError(
            f"{shown(folder)}: holds no result of an attack; run repsynth attack -o {shown(folder)} to its end"
        ) from None


def _differences(exposure: Exposure, release: Release, targets: int) -> list[str]:
    """Say whether the plan that was attacked is this release's; `targets` are the rows or persons of its table."""
    notes = list(exposure.notes)
    plan = release.plan
    same = (exposure.model, exposure.rows) == (plan.model.name, targets)
    if not same or abs(exposure.epsilon - plan.budget.epsilon) > 1e-6 * plan.budget.epsilon:
        unit = "rows" if release.schema.person is None else "persons"
        notes.append(
            f"The attacks were made on another plan than this release's: {exposure.model}, ε = "
            f"{at_most(exposure.epsilon)}, {exposure.rows:,} {unit}."
        )
    if exposure.exceeded:
        notes.append("An attack proved MORE THAN IS CLAIMED: repsynth attack says which. Publish nothing.")
    return notes


def _attacks(exposure: Exposure) -> Chart:
    """The strongest attack that was made on each decile, with its interval."""
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
            (f"{line.decile}, {name}", line.attack, percent_at_most(line.advantage.value),
             f"{percent_at_least(line.advantage.low)} to {percent_at_most(line.advantage.high)}", line.verdict)
            for line in strongest
        ]  # fmt: skip
    return lines(
        "Attacks that were made, by decile of outlyingness",
        f"The strongest of them in each tenth, on {exposure.targets} {exposure.unit} in {exposure.runs} runs; the "
        f"strongest of many looks stronger than it is. Bars: {exposure.confidence:.0%} intervals.",
        ("decile", "attack", "advantage", "interval", "in words"),
        rows,
        drawn=drawn,
        x="decile of outlyingness (10: the most outlying)",
        y="advantage over guessing",
        percent=True,
    )

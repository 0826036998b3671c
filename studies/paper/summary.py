"""From single runs to statements: means with standard errors, paired differences, and the published values."""

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from scipy.stats import t as student

from studies.paper import STAMP
from studies.paper.grid import METHODS, Cell
from studies.paper.results import Result
from studies.paper.study import Stored

TITLES = {
    "sim": "Simulated",
    "breast_cancer": "Breast Cancer",
    "adult": "Adult",
    "german_credit": "German Credit",
}
BASELINES = ("uniform", "uniform-split", "random", "removal")
COMPARED = {
    "tstr": "TSTR AUROC",
    "top": "top-10 % attack advantage",
    "white_box_top": "best attack on the top 10 %",
}
LEVEL = 0.95


class Mean(msgspec.Struct, frozen=True):
    """A mean over seeds and its standard error; None for the error of a single run."""

    mean: float
    error: float | None


class Row(msgspec.Struct, frozen=True):
    """One method at one budget on one dataset. `failures` counts the runs that have no result."""

    dataset: str
    epsilon: float
    method: str
    runs: int
    failures: int
    means: dict[str, Mean]
    deciles: dict[str, list[float]]
    published: dict[str, float]
    decile_errors: dict[str, list[float]] = {}
    """Standard errors of the deciles, where there are several seeds."""

    def reach(self, error: float) -> float:
        """Half of the Student interval for a mean over the runs, from its standard error."""
        return _student(self.runs) * error


class Difference(msgspec.Struct, frozen=True):
    """REPS minus a baseline, paired by seed, with an interval; over all budgets where `epsilon` is None."""

    dataset: str
    epsilon: float | None
    baseline: str
    measure: str
    mean: float
    low: float
    high: float

    @property
    def distinguishable(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


class Summary(msgspec.Struct, frozen=True):
    """Everything the tables and figures show."""

    protocol: str
    seeds: int
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    agreement: dict[str, dict[str, float]]
    """Per dataset and measure: mean absolute difference to the published value over the private methods."""
    sentences: tuple[str, ...]
    failures: tuple[str, ...]
    note: str = STAMP


def summarise(outcomes: Sequence[Stored]) -> Summary:
    """The summary of a study's outcomes."""
    results = {stored.cell: stored.result for stored in outcomes if stored.result}
    cells = [stored.cell for stored in outcomes]
    names = list(dict.fromkeys(cell.dataset for cell in cells))
    epsilons = sorted({cell.epsilon for cell in cells if cell.epsilon is not None})
    seeds = sorted({cell.seed for cell in cells})
    protocol = cells[0].protocol

    def runs(name: str, epsilon: float, method: str) -> list[tuple[int, Result | None]]:
        budget = None if method == "non-private" else epsilon
        return [(seed, results.get(Cell(protocol, name, seed, budget, method))) for seed in seeds]

    rows = [_row(name, epsilon, method, [r for _, r in runs(name, epsilon, method)])
            for name in names for epsilon in epsilons for method in METHODS]  # fmt: skip
    differences = [
        difference
        for name in names
        for baseline in BASELINES
        for measure in COMPARED
        for difference in _differences(
            name,
            baseline,
            measure,
            {e: _paired(runs(name, e, "reps"), runs(name, e, baseline), measure) for e in epsilons},
        )
    ]
    return Summary(
        protocol=protocol,
        seeds=len(seeds),
        rows=tuple(rows),
        differences=tuple(differences),
        agreement={name: _agreement([row for row in rows if row.dataset == name]) for name in names},
        sentences=tuple(s for name in names if protocol == "sound" and (s := _sentence(name, differences))),
        failures=tuple(f"{_name(s.cell)}: {s.failure}" for s in outcomes if s.failure),
    )


@cache
def published() -> dict[tuple[str, float, str], dict[str, float]]:
    """The paper's tables: by dataset, ε and method.

    >>> published()["adult", 1.0, "reps"]["tstr"]
    0.854
    """
    text = (Path(__file__).parent / "published.csv").read_text(encoding="utf-8")
    measures = ("gamma", "tstr", "mia", "top", "ratio")
    return {
        (line["dataset"], float(line["epsilon"]), line["method"]): {m: float(line[m]) for m in measures if line[m]}
        for line in csv.DictReader(text.splitlines())
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A Student interval for the mean of a few independent values.

    >>> low, high = interval([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    if len(values) < 2:
        return -np.inf, np.inf
    reach = _student(len(values)) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - reach), float(np.mean(values) + reach)


def _student(runs: int) -> float:
    return float(student.ppf((1 + LEVEL) / 2, runs - 1))


def value_of(result: Result, measure: str) -> float | None:
    """One measure of a result by name."""
    if measure == "white_box_top":
        return result.white_box[-1] if result.white_box else None
    value: float | None = getattr(result, measure)
    return value


_MEASURES = ("gamma", "tstr", "mia", "top", "ratio", "white_box_top", "correlation", "recall")
_CURVES = ("by_decile", "distance_by_decile", "white_box")


def _row(name: str, epsilon: float, method: str, runs: list[Result | None]) -> Row:
    found = [run for run in runs if run]
    means = {}
    for measure in _MEASURES:
        values = [value for run in found if (value := value_of(run, measure)) is not None]
        if values:
            error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
            means[measure] = Mean(float(np.mean(values)), error)
    curves = {curve: [getattr(run, curve) for run in found if getattr(run, curve)] for curve in _CURVES}
    return Row(
        dataset=name,
        epsilon=epsilon,
        method=method,
        runs=len(found),
        failures=len(runs) - len(found),
        means=means,
        deciles={curve: np.mean(values, axis=0).tolist() for curve, values in curves.items() if values},
        decile_errors={
            curve: (np.std(values, axis=0, ddof=1) / np.sqrt(len(values))).tolist()
            for curve, values in curves.items()
            if len(values) > 1
        },
        published=published().get((name, epsilon, method), {}),
    )


def _paired(
    ours: Iterable[tuple[int, Result | None]], theirs: Iterable[tuple[int, Result | None]], measure: str
) -> dict[int, float]:
    """By seed, the difference of a measure between two methods on the same split."""
    differences = {}
    for (seed, one), (_, other) in zip(ours, theirs, strict=True):
        if (
            one
            and other
            and (a := value_of(one, measure)) is not None
            and (b := value_of(other, measure)) is not None
        ):
            differences[seed] = a - b
    return differences


def _differences(
    name: str, baseline: str, measure: str, paired: dict[float, dict[int, float]]
) -> Iterable[Difference]:
    """At each budget, and over all of them: there each seed counts once, with its mean over the budgets."""
    budgets: dict[float | None, list[float]] = {epsilon: list(by.values()) for epsilon, by in paired.items()}
    seeds = {seed for by in paired.values() for seed in by}
    budgets[None] = [float(np.mean([by[seed] for by in paired.values() if seed in by])) for seed in sorted(seeds)]
    for epsilon, values in budgets.items():
        if len(values) > 1:  # one difference has no error to judge it by
            yield Difference(name, epsilon, baseline, measure, float(np.mean(values)), *interval(values))


def _agreement(rows: list[Row]) -> dict[str, float]:
    """Mean absolute difference to the published values over private methods and budgets."""
    gaps: dict[str, list[float]] = {}
    for row in rows:
        for measure in ("tstr", "mia", "top", "ratio"):
            if row.method != "non-private" and measure in row.means and measure in row.published:
                gaps.setdefault(measure, []).append(abs(row.means[measure].mean - row.published[measure]))
    return {measure: float(np.mean(values)) for measure, values in gaps.items()}


def _sentence(name: str, differences: Iterable[Difference]) -> str:
    """Whether REPS differs from the uniform method of the same budget, measure by measure."""
    parts = []
    for d in differences:
        if d.dataset == name and d.baseline == "uniform" and d.epsilon is None:
            verdict = "" if d.distinguishable else "not "
            size = f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"
            parts.append(f"{COMPARED[d.measure]} {size}, {verdict}distinguishable from zero")
    return f"{TITLES[name]}, REPS minus DP uniform, all budgets: {'; '.join(parts)}." if parts else ""


def _name(cell: Cell) -> str:
    budget = "" if cell.epsilon is None else f", ε = {cell.epsilon:g}"
    return f"{cell.dataset}, {cell.method}{budget}, seed {cell.seed}"

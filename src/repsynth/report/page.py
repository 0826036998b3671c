"""Render each kind of page to one HTML file that loads nothing else.

The facts and charts of the public page of a release: all of it is post-processing.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import repsynth
from repsynth.errors import ConfigError
from repsynth.evaluation.export import STEPS
from repsynth.planning.warnings import csv_warnings
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.formatting import fixed_upper, upper
from repsynth.privacy.unit import counted_rows, neighbours_of, of_persons, row_meaning
from repsynth.release.account import mu_of_event
from repsynth.release.accuracy import Z, expected_errors
from repsynth.release.release import Release
from repsynth.report.charts import Chart, Line, bars, lines
from repsynth.report.own_bound import calculator
from repsynth.schema import Schema, check_unit
from repsynth.scoring.base import NAT
from repsynth.scoring.weights import FULL

CURATOR_STEPS = ("reading", *STEPS, "losses", "drawing")
"""The steps of making the curator's page, in this order."""

_PAGES = Path(__file__).parent / "pages"


def public_page(folder: Path) -> str:
    """Return the public page of the release in a folder.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes")
    >>> "What is my own bound?" in public_page(release.save(Path(tempfile.mkdtemp()) / "release"))
    True
    """
    release = Release.load(folder)
    render = _template("report.html")
    from repsynth.report.page import public_facts

    facts = public_facts(release, folder)
    return render(it=facts, own_bound=_file("own_bound.js"), page=_file("page.js"), data=_json(facts.calculator))


def curator_page(
    folder: Path,
    train: Any,
    holdout: Any = None,
    attack: Path | None = None,
    evaluation: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> str:
    """Return the curator's page of a release and of the table that it was made from. PRIVATE.

    `holdout` are real rows that the release was not made from, `attack` and `evaluation` are the
    folders of `repsynth attack` and `repsynth evaluate`; without the latter the measures are computed here.
    """
    release = Release.load(folder)
    render = _template("curator.html", extras="report,evaluate")
    try:
        from repsynth.report.curator import curator_facts
    except ImportError:
        raise _missing("report,evaluate") from None

    return render(
        it=curator_facts(release, train, holdout, attack, evaluation, on_step), own_style=_file("curator.css")
    )


def explore_page(schema: Schema, release: Release | None = None) -> str:
    """Return the page for choosing a plan by sliders; with a release, it starts at its settings.

    >>> from repsynth.schema import Boolean
    >>> "Save plan.toml" in explore_page(Schema(columns=(Boolean(name="smoker"),), one_row_per_person=True))
    True
    """
    check_unit(schema)
    render = _template("explore.html")
    from repsynth.report.explore import explore_facts

    facts = explore_facts(schema, release)
    columns = len(schema.learned)
    return render(
        count="1 column" if columns == 1 else f"{columns:,} columns",
        released=release is not None,
        notes=[] if release is None else facts["release"]["notes"],
        persons=None if schema.person is None else of_persons(schema.person),
        row=row_meaning(schema),
        rows_per_person=schema.rows_per_person,
        version=repsynth.__version__,
        own_style=_file("explore.css"),
        page=_file("explore.js"),
        data=_json(facts),
    )


def _missing(extras: str) -> ConfigError:
    return ConfigError(f"a page needs more packages; pip install 'repsynth[{extras}]'")


def _template(name: str, *, extras: str = "report") -> Callable[..., str]:
    try:
        import jinja2
        import vl_convert  # noqa: F401
    except ImportError:
        raise _missing(extras) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return partial(environment.get_template(name).render, style=_file("style.css"))


def _file(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """Return JSON that cannot end a script element."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


@dataclass(frozen=True)
class Promise:
    """A bound, and how many of 100 guesses about membership it allows to be right (50 is chance; may be empty)."""

    who: str
    epsilon: str
    right: str


@dataclass(frozen=True)
class Fact:
    """A line of a list: text, or groups of column names (any writing direction)."""

    name: str
    value: str | tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PublicFacts:
    publishable: bool
    epsilon: str
    delta: str
    neighbours: str
    row: str
    promise: Promise
    outliers: Promise | None
    at_deltas: tuple[Fact, ...]
    charts: dict[str, Chart]
    errors: tuple[Fact, ...]
    means: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    known: tuple[Fact, ...]
    warnings: tuple[str, ...]
    origin: tuple[Fact, ...]
    calculator: dict[str, Any]
    persons: str = ""


def public_facts(release: Release, folder: Path) -> PublicFacts:
    privacy, expected = release.privacy, expected_errors(release)
    mu = [] if privacy.mu is None else [Fact("in Gaussian differential privacy", f"μ = {upper(privacy.mu)}")]
    return PublicFacts(
        publishable=release.publishable,
        epsilon=upper(privacy.epsilon),
        delta=upper(privacy.delta, 3),
        neighbours=neighbours_of(release.schema),
        row=row_meaning(release.schema),
        promise=Promise("anybody", upper(privacy.epsilon), _right(float(privacy.advantage))),
        outliers=_outliers(release),
        at_deltas=(
            *(Fact(f"δ = {upper(d, 6)}", f"ε = {upper(e, 3)}") for d, e in privacy.epsilon_by_delta().items()),
            *mu,
        ),
        charts=_charts(release),
        errors=tuple(
            Fact(shares.column, f"± {fixed_upper(100 * Z * shares.standard_error, 2)}")
            for shares in expected.columns
        ),
        means=tuple(
            (m.column, _plain(m.mean), f"± {_plain_at_most(Z * m.standard_error)}", _plain_at_most(m.binning))
            for m in expected.means
        ),
        notes=expected.notes,
        known=tuple(_known(release)),
        warnings=(*release.warnings, *csv_warnings(release.schema)),
        origin=tuple(_origin(release, folder)),
        calculator=_calculator(release),
        persons="" if release.schema.person is None else of_persons(release.schema.person),
    )


def _outliers(release: Release) -> Promise | None:
    """Return the joint bound of outliers. It bounds guesses only where outliers were known before the run."""
    if release.threshold is None:
        return None
    privacy = release.privacy
    who = "outliers" if release.plan.scorer.targets_outliers else "those who were chosen at random"
    right = _right(float(privacy.loss.advantage_at(privacy.outlier_weight))) if privacy.borrowed else ""
    if release.schema.person is not None:
        who = f"persons all of whose rows are {who}"
    return Promise(f"{who}, above the released threshold", upper(privacy.outlier_epsilon, 3), right)


def _plain(value: float) -> str:
    """Five digits, without an exponent."""
    return f"{value:,.{_places(value, 5)}f}"


def _plain_at_most(value: float) -> str:
    """Three digits, rounded up."""
    return fixed_upper(value, _places(value, 3))


def _places(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def _right(advantage: float) -> str:
    """Return how many of 100 guesses are right, half of them about members, rounded up to a tenth."""
    return fixed_upper(50 + 50 * advantage, 1)


def _charts(release: Release) -> dict[str, Chart]:
    found = {"budget": _budget(release), "weight": _by_weight(release)}
    if release.threshold is not None:
        found |= {"score": _by_score(release), "losses": _losses(release)}
    return found


def _budget(release: Release) -> Chart:
    """Draw the budget by μ²; with a training, which has no μ, by the ε of each measurement alone."""
    events, delta = release.events, release.privacy.delta
    trained = any(isinstance(event, SampledEvent) for event in events)
    names = [event.name for event in events]
    if trained:
        from repsynth.privacy.loss import Loss

        values = [Loss.of((event,)).epsilon(delta) for event in events]
        texts, axis = [f"ε {upper(value, 3)}" for value in values], "ε at the release's δ, each alone"
    else:
        squares = np.array([(mu_of_event(event) or 0.0) ** 2 for event in events])
        values = (squares / squares.sum()).tolist()
        texts, axis = [f"{value:.1%}" for value in values], "part of the budget (μ²)"
    words = "The budget by measurement: " + ", ".join(f"{n} {t}" for n, t in zip(names, texts, strict=True)) + "."
    rows = list(zip(names, texts, strict=True))
    head = ("measurement", axis)
    return bars("What the budget was spent on", words, head, rows, values=values, axis=axis, percent=not trained)


def _by_weight(release: Release) -> Chart:
    privacy = release.privacy
    weights = np.linspace(0.0, 1.0, 41)
    epsilons = privacy.epsilon_at(weights)
    rows = [(f"{w:.2f}", upper(float(e), 3)) for w, e in zip(weights[::4], epsilons[::4], strict=True)]
    weight = privacy.outlier_weight
    at = [(weight, "outliers")] if release.threshold is not None and weight < 1 else []
    words = (
        f"The loss rises with the weight, from ε = {rows[0][1]} at weight 0 to ε = {rows[-1][1]} at weight 1"
        + (f"; outliers have at most weight {fixed_upper(weight, 2)}." if at else ".")
    )
    return lines(
        "Who weighs less loses less",
        words,
        ("weight", "ε at most"),
        rows,
        drawn=[Line("", list(zip(weights.tolist(), epsilons.tolist(), strict=True)))],
        x="weight in the model",
        y="ε at most",
        at=at,
    )


def _by_score(release: Release) -> Chart:
    assert release.threshold is not None
    privacy, threshold = release.privacy, release.threshold.value / NAT
    start = min(release.score.lowest, release.weights.start) / NAT
    end = max(release.weights.start / NAT, threshold) + max(threshold - start, 4.0) * 0.8
    scores = np.linspace(start, end, 241)
    epsilons = privacy.epsilon_at(release.weights.of(np.floor(scores * NAT).astype(np.int64)) / FULL)
    rows = [(fixed_upper(s, 1), upper(float(e), 3)) for s, e in zip(scores[::24], epsilons[::24], strict=True)]
    bound = upper(privacy.outlier_epsilon, 3)
    begin = fixed_upper(threshold, 1)
    words = f"The loss falls with the score; from the threshold of {begin} on it is at most ε = {bound}."
    return lines(
        "Who stands out more loses less",
        words,
        ("score", "ε at most"),
        rows,
        drawn=[Line("", list(zip(scores.tolist(), epsilons.tolist(), strict=True)))],
        x=f"score: how much a {'record' if release.schema.person is None else 'row'} stands out",
        y="ε at most",
        at=[(threshold, "threshold")],
        steps=True,
    )


def _losses(release: Release) -> Chart:
    found = release.privacy.by_epsilon(lambda epsilon: float(upper(epsilon, 3)))
    names = [f"ε at most {upper(epsilon, 3)}" for epsilon in found]
    rows = [(name, str(fraction)) for name, fraction in zip(names, found.values(), strict=True)]
    several, counted = release.schema.person is not None, counted_rows(release.schema)
    words = (
        f"{counted.capitalize()}, by what they lose: " + ", ".join(f"{text} {name}" for name, text in rows) + "."
    )
    if several:
        words += (
            " A loss is that of a person all of whose rows are like that one; how many persons have each loss "
            "does not follow from what was released."
        )
    part = "part of the rows, weighted" if several else "part of the records"
    return bars(
        f"How the loss is spread over the {'rows' if several else 'records'}",
        words,
        ("loss", part),
        rows,
        values=[fraction.value for fraction in found.values()],
        errors=[fraction.standard_error for fraction in found.values()],
        marked=[epsilon < release.privacy.epsilon * 0.999 for epsilon in found],
        axis=f"{part}, with the noise of one standard error",
    )


def _known(release: Release) -> list[Fact]:
    plan = release.plan
    found = [Fact("model", plan.model.name)]
    found.append(Fact("columns", tuple((column.name,) for column in release.schema.learned)))
    if release.schema.label is not None:
        found.append(Fact("label", ((release.schema.label,),)))
    tables = (table.columns for table in expected_errors(release).tables if len(table.columns) > 1)
    once = dict.fromkeys(tables)  # one may be measured in several rounds
    if once:
        found.append(Fact("tables of several columns", tuple(once)))
    source = "declared public" if plan.public_rows is not None else "a noisy count"
    what = "records" if release.schema.person is None else "rows that count"
    found.append(Fact(what, f"{release.rows:,.0f} ({source})"))
    found.append(Fact("a synthetic row represents", row_meaning(release.schema)))
    if release.schema.person is not None:
        found.append(Fact("persons", of_persons(release.schema.person)))
    return found


def _origin(release: Release, folder: Path) -> list[Fact]:
    made = msgspec.json.decode((folder / "release.json").read_bytes())
    return [
        Fact("release made by", f"repsynth {made['repsynth']}, format {made['format']}"),
        Fact("page made by", f"repsynth {repsynth.__version__}"),
        *(
            Fact(f"SHA-256 of {name}", hashlib.sha256((folder / name).read_bytes()).hexdigest())
            for name in ("release.json", "arrays.npz")
        ),
    ]


def _calculator(release: Release) -> dict[str, Any]:
    """Return the tables of the calculator, with each ε also as text, rounded up."""
    tables = calculator(release)
    return tables | {"shown": {weight: upper(epsilon, 3) for weight, epsilon in tables["epsilons"].items()}}

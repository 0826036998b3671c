"""Render each kind of page to one HTML file that loads nothing else.

The facts and charts of the public page of a release: all of it is post-processing.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import repsynth
from repsynth.arrays import Floats
from repsynth.columns.cells import Bins
from repsynth.errors import ConfigError
from repsynth.evaluation.export import STEPS
from repsynth.planning.warnings import csv_warnings
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.formatting import fixed_upper, upper
from repsynth.privacy.loss import Loss
from repsynth.privacy.unit import counted_rows, neighbours_of, of_persons, row_meaning, unit_of
from repsynth.release.account import mu_of_event, purpose
from repsynth.release.accuracy import Expected, Z, bin_names, expected_errors
from repsynth.release.release import Release
from repsynth.report.charts import Chart, Line, bars, lines
from repsynth.report.own_bound import calculator
from repsynth.schema import Numeric, Schema, check_unit
from repsynth.scoring.base import NAT
from repsynth.scoring.weights import FULL

CURATOR_STEPS = ("reading", *STEPS, "losses", "drawing")
"""The steps of making the curator's page, in this order."""

_PAGES = Path(__file__).parent / "pages"


def public_page(folder: Path, *, title: str = "", contact: str = "", ledger_entry: str = "") -> str:
    """Return the public page of the release in a folder.

    The title, a contact and the entry of the run in the ledger are shown as given, with the date of today.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes")
    >>> "What is my own bound?" in public_page(release.save(Path(tempfile.mkdtemp()) / "release"))
    True
    """
    release = Release.load(folder)
    render = _template("report.html")
    facts = public_facts(release, folder, ledger_entry)
    own = [("contact", contact)] if contact else []
    today = date.today()
    return render(
        it=facts | {"about": [*own, ("date", f"{today.day} {today:%B %Y}"), *facts["about"]]},
        title=title or "Privacy report of a synthetic table",
        ledger_entry=ledger_entry,
        own_bound=_file("own_bound.js"),
        page=_file("page.js"),
        data=_json(facts["calculator"]),
    )


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


def public_facts(release: Release, folder: Path, ledger_entry: str = "") -> dict[str, Any]:
    """Return the contents of the public page. All of it follows from the release."""
    privacy, schema, expected = release.privacy, release.schema, expected_errors(release)
    several = schema.person is not None
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("release.json", "arrays.npz")
    }
    made = msgspec.json.decode((folder / "release.json").read_bytes())
    at_deltas = [(f"δ = {upper(d, 6)}", f"ε = {upper(e, 3)}") for d, e in privacy.epsilon_by_delta().items()]
    return {
        "publishable": release.publishable,
        "epsilon": upper(privacy.epsilon),
        "delta": upper(privacy.delta, 3),
        "right": _right(privacy.advantage),
        "outliers": _outliers(release),
        "unit": unit_of(schema),
        "neighbours": neighbours_of(schema),
        "persons": of_persons(schema.person) if schema.person else "",
        "row": row_meaning(schema),
        "about": [
            ("unit of privacy", unit_of(schema)),
            ("rows that count" if several else "records", _rows(release, expected)),
            (f"columns ({len(schema.learned)})", tuple((column.name,) for column in schema.learned)),
            *([("label", ((schema.label,),))] if schema.label else []),
            ("model", release.plan.model.name),
            ("ledger entry", ledger_entry or "not stated; see the page to sign"),
        ],
        "uses": _uses(release, expected),
        "histograms": [_histogram(release, i, expected) for i in range(len(expected.columns))],
        "notes": expected.notes,
        "warnings": (*release.warnings, *csv_warnings(schema)),
        "at_deltas": [
            *at_deltas,
            *([] if privacy.mu is None else [("in Gaussian differential privacy", f"μ = {upper(privacy.mu)}")]),
        ],
        "charts": [
            *([] if release.threshold is None else [_losses(release), _by_score(release)]),
            _by_weight(release),
            _budget(release),
        ],
        "measured": schema.measured is not None,
        "public_rows": release.plan.public_rows is not None,
        "origin": [
            ("release made by", f"repsynth {made['repsynth']}, format {made['format']}"),
            ("page made by", f"repsynth {repsynth.__version__}"),
            *((f"SHA-256 of {name}", digest) for name, digest in digests.items()),
        ],
        "digest": digests["release.json"],
        "calculator": _calculator(release),
    }


def _outliers(release: Release) -> dict[str, str] | None:
    """Return the joint bound of outliers. It bounds guesses only where all weights were public before the run."""
    if release.threshold is None:
        return None
    privacy = release.privacy
    prior = privacy.borrowed is not None
    return {
        "who": "outliers" if release.plan.scorer.targets_outliers else "those chosen at random",
        "epsilon": upper(privacy.outlier_epsilon, 3),
        "right": _right(float(privacy.loss.advantage_at(privacy.outlier_weight)))
        if privacy.weights_public
        else "",
        "in_both": upper(privacy.epsilon_in_both() or 0.0) if prior else "",
    }


def _right(advantage: float) -> str:
    """Return how many of 100 guesses are right, half of them about members, rounded up to a tenth."""
    return fixed_upper(50 + 50 * float(advantage), 1)


def _plus_minus(value: float, error: float) -> tuple[str, str]:
    """Return a value without digits that its error does not support, and the error of the rounded value.

    >>> _plus_minus(66.92, 0.47), _plus_minus(32561.2, 37.1), _plus_minus(7.0, 0.0)
    (('66.9', '0.5'), ('32,560', '40'), ('7', '0'))
    """
    places = -math.floor(math.log10(error)) if error > 0 else 0
    rounded = round(value, places) + 0.0  # no minus zero
    unit, most = 10.0 ** -min(places, 0), error + abs(value - rounded)
    shown = max(places, 0)
    return f"{rounded:,.{shown}f}", fixed_upper(math.ceil(most / unit) * unit if unit > 1 else most, shown)


def _at_most(value: float) -> str:
    return _plus_minus(0.0, value)[1]


def _rows(release: Release, expected: Expected) -> str:
    if release.plan.public_rows is not None:
        return f"{release.rows:,.0f} (declared public)"
    rows, error = _plus_minus(release.rows, Z * expected.rows_standard_error)
    return f"about {rows} ± {error} (a noisy count)"


def _uses(release: Release, expected: Expected) -> list[tuple[str, str]]:
    """Return what the table is good for, from the release alone."""
    label = release.schema.label
    worst = 100 * Z * max(shares.standard_error for shares in expected.columns)
    answer = "yes" if worst <= 2 else "roughly" if worst <= 10 else "no"
    group = math.ceil(Z * release.stage.coarse.sigma)
    pairs = len({table.columns for table in expected.tables if len(table.columns) > 1})
    measured = f"{pairs} groups of columns were measured together" if pairs else "no pair was measured directly"
    return [
        (
            "shares of one column",
            f"{answer}: noise moves them by at most {_at_most(worst)} points in 95 of 100 cases",
        ),
        ("how columns go together", f"check first: {measured}, and the model fills in the rest"),
        *([(f"predicting {label}", "check first: the curator can compare with real rows")] if label else []),
        ("small groups", f"no: a count below about {group:,} cannot be told from noise"),
        ("facts about single people", "no: no row is a real person's, and rare values may vanish"),
    ]


_CELLS = 12
"""The most values or ranges in the chart of a column."""


def _histogram(release: Release, i: int, expected: Expected) -> Chart:
    """Draw the released histogram of a column with its 95 % intervals."""
    coarse = release.stage.coarse
    bins, counts, rows = coarse.bins[i], coarse.noisy(i), coarse.rows
    texts, shares, low, high = [], [], [], []
    cells = _cells(bins, counts)
    for name, cell in cells:
        share = float(np.clip(counts[cell].sum() / rows, 0.0, 1.0))
        error = Z * math.hypot(coarse.sigma * math.sqrt(len(cell)), share * expected.rows_standard_error) / rows
        shown = " ± ".join(_plus_minus(100 * share, 100 * error))
        texts.append((name, f"{shown} %" if share > error else f"at most {_at_most(100 * (share + error))} %"))
        shares.append(share)
        low.append(max(share - error, 0.0))
        high.append(min(share + error, 1.0))
    words = ""
    for mean in expected.means:
        if mean.column == bins.column.name:
            value, error_of_mean = _plus_minus(mean.mean, Z * mean.standard_error)
            words = f"Mean {value} ± {error_of_mean} (95 %)"
            words += (
                f", and up to {_at_most(mean.binning)} more because ranges were counted." if mean.binning else "."
            )
    return bars(bins.column.name, words, ("value", "share"), texts, values=shares, low=low, high=high)


def _cells(bins: Bins, counts: Floats) -> list[tuple[str, list[int]]]:
    """Return the names of a few values or ranges, and their bins. The smallest are merged."""
    missing = [("missing", [bins.values])] if bins.column.missing else []
    if bins.starts is None:
        names, order = bin_names(bins), np.argsort(-counts[: bins.values], kind="stable").tolist()
        if bins.values <= _CELLS:
            return [*((names[k], [k]) for k in range(bins.values)), *missing]
        first, rest = order[: _CELLS - 1], order[_CELLS - 1 :]
        return [*((names[k], [k]) for k in first), (f"{len(rest):,} others", rest), *missing]
    assert isinstance(bins.column, Numeric)
    cells = [[k] for k in range(bins.numbers)]
    while len(cells) > _CELLS:
        k = int(np.argmin([counts[a + b].sum() for a, b in pairwise(cells)]))
        cells[k : k + 2] = [cells[k] + cells[k + 1]]
    names = bin_names(Bins.at(bins.column, bins.starts[[cell[0] for cell in cells]]))
    cells += [[k] for k in range(bins.numbers, bins.values)]
    return [*zip(names[:-1], cells, strict=True), *missing]


def _budget(release: Release) -> Chart:
    """Draw the budget by μ²; with a training, which has no μ, by the ε of each measurement alone."""
    model, delta = release.plan.model, release.privacy.delta
    trained = any(isinstance(event, SampledEvent) for event in release.events)
    parts: dict[str, float] = defaultdict(float)
    for event in release.events:
        value = Loss.of((event,)).epsilon(delta) if trained else (mu_of_event(event) or 0.0) ** 2
        parts[purpose(event.name, model) or event.name] += value
    whole = 1.0 if trained else sum(parts.values())
    values = [value / whole for value in parts.values()]
    rows = [
        (name, f"ε = {upper(value, 3)}" if trained else f"{100 * value:.1f} %")
        for name, value in zip(parts, values, strict=True)
    ]
    head = ("measurement", "ε at the release's δ, alone" if trained else "part of μ²")
    full = None if trained else 1.0
    return bars("What the budget was spent on", "", head, rows, values=values, full=full, percent=not trained)


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
        "Privacy loss by weight",
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
        "Privacy loss by score",
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
    several, counted = release.schema.person is not None, counted_rows(release.schema)
    words = f"{counted.capitalize()}, by what they lose. Lines: 95 % intervals."
    if several:
        words += (
            " A loss is that of a person all of whose rows are like that one; how many persons have each loss "
            "does not follow from what was released."
        )
    shares = [fraction.value for fraction in found.values()]
    errors = [Z * fraction.standard_error for fraction in found.values()]
    return bars(
        f"How the loss is spread over the {'rows' if several else 'records'}",
        words,
        ("loss", "part of the rows, weighted" if several else "part of the records"),
        [
            (f"ε at most {upper(epsilon, 3)}", f"{' ± '.join(_plus_minus(100 * share, 100 * error))} %")
            for epsilon, share, error in zip(found, shares, errors, strict=True)
        ],
        values=shares,
        low=[share - error for share, error in zip(shares, errors, strict=True)],
        high=[share + error for share, error in zip(shares, errors, strict=True)],
        marked=[epsilon < release.privacy.epsilon * 0.999 for epsilon in found],
        full=1.0,
    )


def _calculator(release: Release) -> dict[str, Any]:
    """Return the tables of the calculator, with each ε also as text, rounded up."""
    tables = calculator(release)
    return tables | {"shown": {weight: upper(epsilon, 3) for weight, epsilon in tables["epsilons"].items()}}

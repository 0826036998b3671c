"""The Python functions: what the command line does, without the command line."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from repsynth.errors import ConfigError, RepsynthWarning
from repsynth.planning.cautions import cautions
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import PARTS, Settings, keywords
from repsynth.planning.settings_file import read_settings, with_given
from repsynth.schema import Schema, load_schema

if TYPE_CHECKING:
    from repsynth.attacks.exposure import Exposure
    from repsynth.auditing.bounds import Finding
    from repsynth.curator.check import TableCheck
    from repsynth.curator.dossier import Summary
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.expected import Expected
    from repsynth.release.release import Release
    from repsynth.scoring.borrowed import Borrowed

F = TypeVar("F", bound=Callable[..., Any])


def takes_settings(function: F) -> F:
    """Show every setting in the signature, where `help` and editors look for it."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [*PARTS, *keywords()]
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
    function.__signature__ = signature.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]
    return function


@takes_settings
def plan(
    schema: Schema | str | Path,
    *,
    settings: Settings | str | Path | None = None,
    scores_from: "Release | Borrowed | str | Path | None" = None,
    **knobs: Any,
) -> Plan:
    """What a run with these settings would measure and cost; no data is opened.

    Settings are keywords, a `Settings`, or the path of a `plan.toml`; keywords beside a file count more. With
    `scores_from`, an earlier release or its folder, score function and threshold are taken from there.

    >>> from repsynth import datasets
    >>> list(plan(datasets.load("sim").schema, epsilon=1.0, model="mst").charges)
    ['count', 'ranges', 'zoom', 'histograms', 'scores', 'label tables', 'choice', 'tables']
    """
    return make_plan(_schema(schema), _settings(settings, knobs), _borrowed(scores_from))


@takes_settings
def synthesize(
    table: Any,
    schema: Schema | str | Path,
    *,
    settings: Settings | str | Path | None = None,
    checkpoint: str | Path | None = None,
    ledger: "str | Path | Ledger | None" = None,
    dataset: str | None = None,
    engine: str = "local",
    scores_from: "Release | Borrowed | str | Path | None" = None,
    **knobs: Any,
) -> "Release":
    """A differentially private release of a table: the data is read and the budget is spent, once.

    `table` is a pandas or polars data frame, a pyarrow table, or the path of a CSV or Parquet file. The
    budget is one of `epsilon` (with `delta`), `mu` or `rho`; `model`, `weights` and `scorer` are names or
    objects, and their own settings may stand beside them. Everything is checked before data is opened.
    With a `ledger`, the cost is set aside in the budget of `dataset` before the data is opened. A model that is
    trained can be given a folder for its `checkpoint`: the same call goes on from there if it was killed. The
    folder stays until the release is saved. `scores_from` is an earlier release of a table with the same columns,
    or its folder: score function and threshold are taken from there, cost this table nothing, and are kept.

    What a user should know is warned of (`RepsynthWarning`), as far as it is known before anything is spent; what
    the release itself shows comes after, and never keeps it from being handed out. `release.warnings` has it all.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> people = pa.table({"age": [30, 41, 55] * 300, "smoker": [True, False, False] * 300})
    >>> schema = parse_schema('''
    ... label = "smoker"
    ... columns.age = {type = "integer", min = 18, max = 99}
    ... columns.smoker = {type = "boolean"}
    ... ''')
    >>> release = synthesize(people, schema, epsilon=2.0, delta=1e-6)
    >>> release.privacy.epsilon <= 2.0
    True
    >>> release.sample(5).column_names
    ['age', 'smoker']
    """
    from repsynth.data.sources import open_source
    from repsynth.pipeline.payment import open_payer
    from repsynth.pipeline.run import run

    if not isinstance(checkpoint, str | Path | None):
        raise ConfigError("the checkpoint must be the path of a folder")
    made = make_plan(_schema(schema), _settings(settings, knobs), _borrowed(scores_from))
    folder = None if checkpoint is None else Path(checkpoint)
    known = cautions(made, made.public_rows)
    for text in known:
        warnings.warn(text, RepsynthWarning, stacklevel=2)
    source = open_source(table)
    release = run(made, source, payer=open_payer(ledger, dataset), checkpoint=folder, engine=engine)
    for text in release.warnings:
        if text not in known:
            _warn_of_what_is_paid_for(text)
    return release


def _warn_of_what_is_paid_for(text: str) -> None:
    """Where warnings are errors, too, this is only shown: the release would be lost, and its budget is spent."""
    try:
        warnings.warn(text, RepsynthWarning, stacklevel=3)
    except RepsynthWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, RepsynthWarning, stacklevel=3)


def draft_schema(table: Any, *, label: str | None = None) -> str:
    """The text of a `schema.toml` to be completed by hand, read off the data: NOT private.

    >>> import pyarrow as pa
    >>> print(draft_schema(pa.table({"age": [30, 41, 52]})).splitlines()[-3])
    type = "integer"
    """
    from repsynth.curator.draft import draft_schema as draft

    return draft(table, label=label)


def check_table(table: Any, schema: Schema | str | Path) -> "TableCheck":
    """What the schema makes of the table, before anything is paid: PRIVATE, and nothing is written or spent.

    For each column: how many cells cannot be read, are clipped or count as missing, and what to declare.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> schema = parse_schema('columns.age = {type = "integer", min = 18, max = 99}')
    >>> check_table(pa.table({"age": [30, 41, 120, None]}), schema).columns[0].above
    0.25
    """
    from repsynth.curator.check import check_table as check

    return check(table, _schema(schema))


def risk(table: Any, release: "Release | str | Path", path: str | Path) -> "Summary":
    """Write the curator's dossier, each record's own loss, to a Parquet file: PRIVATE, and so is the summary.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0)
    >>> risk(sim.table, release, Path(tempfile.mkdtemp()) / "dossier.parquet").records
    6000
    """
    from repsynth.curator.dossier import write_dossier
    from repsynth.data.write import check_table_path
    from repsynth.release.release import Release

    check_table_path(Path(path), (".parquet",))
    return write_dossier(table, release if isinstance(release, Release) else Release.load(release), Path(path))


def inspect_release(release: "Release | str | Path") -> dict[str, Any]:
    """What a release cost and how the loss is spread, as plain data: what `repsynth inspect --json` prints.

    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> inspect_release(synthesize(sim.table, sim.schema, epsilon=1.0, model="naive-bayes"))["model"]
    'naive-bayes'
    """
    from repsynth.release.describe import release_data
    from repsynth.release.release import Release

    return release_data(release if isinstance(release, Release) else Release.load(release))


def evaluate(
    train: Any,
    synthetic: Any = None,
    schema: Schema | str | Path | None = None,
    *,
    holdout: Any = None,
    release: "Release | str | Path | None" = None,
    label: str | None = None,
    folder: str | Path | None = None,
) -> "Evaluation":
    """Measure what a synthetic table is good for: PRIVATE, since it is computed from the training table.

    Without a synthetic table, one is drawn from the release; without a schema, it is the release's. What needs a
    holdout, real rows that the release was not made from, is left out where there is none (`left_out` says what).
    With a `folder`, everything is written there, too.

    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> found = evaluate(sim.table.slice(0, 500), sim.table.slice(500, 500), sim.schema)
    >>> found.private, found["one-way distance"].value < 0.1, "prediction by boosting" in found.left_out
    (True, True, True)
    """
    from repsynth.release.release import Release

    if synthetic is None and release is None:
        raise ConfigError("give a synthetic table, or a release to draw one from")
    try:
        from repsynth.evaluation.evaluate import evaluate_tables
        from repsynth.evaluation.inputs import Inputs, agreed_schema
        from repsynth.evaluation.written import check_folder, write_evaluation
    except ImportError:
        raise ConfigError("evaluating needs more packages; pip install 'repsynth[evaluate]'") from None

    if folder is not None:
        check_folder(Path(folder))
    loaded = release if release is None or isinstance(release, Release) else Release.load(release)
    agreed = agreed_schema(None if schema is None else _schema(schema), loaded)
    drawn = loaded.sample(seed=0) if synthetic is None and loaded is not None else synthetic
    found = evaluate_tables(Inputs.open(train, drawn, holdout, agreed, label), loaded)
    if folder is not None:
        write_evaluation(found, Path(folder))
    return found


def expected_errors(release: "Release | str | Path") -> "Expected":
    """Standard errors of shares, means and the model's tables from a release alone: they may be published.

    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> expected_errors(synthesize(sim.table, sim.schema, epsilon=1.0)).columns[0].column
    'x1'
    """
    from repsynth.release.expected import expected_errors as expected
    from repsynth.release.release import Release

    return expected(release if isinstance(release, Release) else Release.load(release))


@takes_settings
def audit(
    schema: Schema | str | Path,
    table: Any = None,
    *,
    settings: Settings | str | Path | None = None,
    runs: int = 100_000,
    black_box_runs: int = 0,
    scores_from: "Release | Borrowed | str | Path | None" = None,
    **knobs: Any,
) -> "Iterator[Finding]":
    """Attack the mechanism and compare with its claims, on a table or on one made up from the schema.

    With a `table`, what it finds is PRIVATE.

    >>> from repsynth import datasets
    >>> findings = audit(datasets.load("sim").schema, epsilon=1.0, model="naive-bayes", runs=1000)
    >>> sorted({finding.target for finding in findings})[:2]
    ['canary', 'canary alone']
    """
    from repsynth.auditing.audit import audit as attack
    from repsynth.auditing.targets import made_up_table

    made = make_plan(_schema(schema), _settings(settings, knobs), _borrowed(scores_from))
    source = made_up_table(made.schema) if table is None else table
    return attack(made, source, runs=runs, black_box_runs=black_box_runs)


@takes_settings
def attack(
    table: Any,
    schema: Schema | str | Path,
    folder: str | Path,
    *,
    holdout: Any = None,
    settings: Settings | str | Path | None = None,
    targets: int = 100,
    runs: int = 64,
    jobs: int = 1,
    seed: int = 0,
    power: bool = False,
    scores_from: "Release | Borrowed | str | Path | None" = None,
    **knobs: Any,
) -> "Exposure":
    """Attack records of a table as strangers could, and see who would be found: PRIVATE, and nothing is released.

    `holdout` is a table of people like those, who are not in it; without one, attacks that need it are left out.
    Each run is kept in the folder: the same call goes on where it stopped. With `power`, the same attacks are also
    made where there is no noise: one that finds nobody there proves nothing.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> train, others = sim.table.slice(0, 500), sim.table.slice(3000, 300)
    >>> found = attack(train, sim.schema, Path(tempfile.mkdtemp()) / "attack", holdout=others, targets=10, runs=8,
    ...                epsilon=1.0, model="naive-bayes")
    >>> found.private, found.exceeded
    (True, False)
    """
    from repsynth.attacks.exposure import attack as carry_out

    made = make_plan(_schema(schema), _settings(settings, knobs), _borrowed(scores_from))
    return carry_out(
        made, table, holdout, Path(folder), targets=targets, runs=runs, jobs=jobs, seed=seed, power=power
    )


def _schema(schema: Schema | str | Path) -> Schema:
    if not isinstance(schema, Schema | str | Path):
        raise ConfigError("the schema must be a Schema, or the path of a schema.toml")
    return schema if isinstance(schema, Schema) else load_schema(schema)


def _borrowed(source: "Release | Borrowed | str | Path | None") -> "Borrowed | None":
    from repsynth.scoring.borrowed import Borrowed

    if source is None or isinstance(source, Borrowed):
        return source
    from repsynth.release.lending import borrow

    return borrow(source)


def _settings(settings: Settings | str | Path | None, knobs: dict[str, Any]) -> Settings:
    if isinstance(settings, Settings):
        if knobs:
            raise ConfigError(f"give {', '.join(knobs)} to the settings themselves, not beside them")
        return settings
    return Settings.of(**with_given({} if settings is None else read_settings(Path(settings)), knobs))

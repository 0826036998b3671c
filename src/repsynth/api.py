"""The Python functions. The command line calls them and prints what they return.

Every check that can refuse a run is made here, before any budget is spent.
"""

import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsynth.errors import ConfigError, RepsynthWarning, SchemaError, has_controls
from repsynth.io.reading import AS_USUAL, ReadOptions
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings, read_settings, with_given
from repsynth.planning.warnings import plan_warnings
from repsynth.schema import Schema, load_schema, schema_to_dict

if TYPE_CHECKING:
    from repsynth.attacks.results import Exposure
    from repsynth.attacks.statistics import Finding
    from repsynth.curator.check import TableCheck
    from repsynth.curator.dossier import DossierSummary
    from repsynth.curator.infer import Draft
    from repsynth.curator.private_schema import MeasuredDraft
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.models.base import Model, Round
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.accuracy import Expected
    from repsynth.release.release import Release
    from repsynth.scoring.base import Scorer
    from repsynth.scoring.transfer import PriorScores
    from repsynth.scoring.weights import Rule

_COMMON = {"epsilon", "delta", "mu", "rho", "public_rows", "model", "weights", "scorer"}
_COMMON |= {"outlier_epsilon", "outlier_fraction"}

OnStep = Callable[[str, int, int], None]
"""Hears the name of a step before it begins, how many steps are done, and how many there are."""


def _silent(step: str, done: int, of: int) -> None:
    pass


def plan(
    schema: Schema | str | Path,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    public_rows: int | None = None,
    model: "str | Model | None" = None,
    weights: "str | Rule | None" = None,
    scorer: "str | Scorer | None" = None,
    outlier_epsilon: float | None = None,
    outlier_fraction: float | None = None,
    settings: Settings | str | Path | None = None,
    scores_from: "Release | PriorScores | str | Path | None" = None,
    read: ReadOptions = AS_USUAL,
) -> Plan:
    """Show what a run would measure and cost. No data is opened.

    The budget is one of `epsilon` (with `delta`), `mu` or `rho`. `model`, `weights` and `scorer` are names, or
    objects with settings of their own such as `HingeExp(gamma=2.0)`. `settings` is a `Settings` or the path of a
    `plan.toml`; the other keywords override it. `scores_from` is an earlier release of a table with the same
    columns, or its folder: the run uses its scores and threshold at no cost.

    >>> from repsynth import datasets
    >>> list(plan(datasets.load("sim").schema, epsilon=1.0, model="naive-bayes").charges)
    ['count', 'coarse histograms', 'scores', 'refined histograms', 'fine histograms', 'sums']
    """
    given = _common(locals())
    return make_plan(read.declared(_schema(schema)), settings_of(settings, given), _borrowed(scores_from))


def _common(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the settings among the keywords of a function."""
    return {name: value for name, value in keywords.items() if name in _COMMON}


def settings_of(settings: Settings | str | Path | None, given: dict[str, Any]) -> Settings:
    """Return settings, from a `plan.toml` if they are a path, with those overridden that are given."""
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(settings, Settings):
        return Settings.of(**with_given({} if settings is None else read_settings(Path(settings)), given))
    kept = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Settings.of(**with_given(kept, given)) if given else settings


def synthesize(
    table: Any,
    schema: Schema | str | Path,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    public_rows: int | None = None,
    model: "str | Model | None" = None,
    weights: "str | Rule | None" = None,
    scorer: "str | Scorer | None" = None,
    outlier_epsilon: float | None = None,
    outlier_fraction: float | None = None,
    settings: Settings | str | Path | None = None,
    scores_from: "Release | PriorScores | str | Path | None" = None,
    read: ReadOptions = AS_USUAL,
    rows: int | None = None,
    ledger: "str | Path | Ledger | None" = None,
    dataset: str | None = None,
    engine: str | None = None,
    cluster: Any = None,
    on_step: OnStep = _silent,
    on_rows: Callable[[int, int | None], None] = lambda done, of: None,
) -> "Release":
    """Read a table once, spend the budget, and return a differentially private release.

    `table` is a pandas or polars data frame, a pyarrow table, the path of a file or a folder, a list of paths, the
    address of a database, or a Dask or Spark DataFrame. `read` describes how a file is written. The settings are
    those of `plan`. `rows` is the number of rows that you will draw, if you know it: what could not be drawn is
    refused before the run.

    Everything is checked before the data is opened. With a `ledger`, the cost is first reserved in the budget of
    `dataset`; an interrupted run has spent it. With `engine="dask"` or `"spark"`, the workers of a `cluster` (an
    address, a Dask `Client` or a `SparkSession`; by default the current or a local one) read and sum the table.
    The release does not depend on the engine.

    Warns (`RepsynthWarning`) about problems that are known before any budget is spent, and afterwards about those
    that the release shows. `release.warnings` lists all of them. `on_rows` hears how many rows were read, of how
    many if that is known.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> people = pa.table({"age": [30, 41, 55] * 300, "smoker": [True, False, False] * 300})
    >>> schema = parse_schema('''
    ... one_row_per_person = true
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
    given = _common(locals())
    from repsynth.io.sources import open_source
    from repsynth.run.payment import open_payer
    from repsynth.run.run import run

    made = plan(schema, settings=settings_of(settings, given), scores_from=scores_from, read=read)
    known = plan_warnings(made, made.public_rows)
    for text in known:
        warnings.warn(text, RepsynthWarning, stacklevel=2)
    payer = open_payer(ledger, dataset)
    source = open_source(table, read)
    steps, rounds = len(made.steps), made.training.rounds if made.training else 0

    def on_round(done: "Round") -> None:
        on_step(f"training: round {done.done} of {done.of}", steps + done.done, steps + rounds)

    hooks: dict[str, Any] = {"on_step": _counted(on_step, steps + rounds), "on_round": on_round}
    hooks["on_rows"] = lambda done: on_rows(done, source.rows)
    release = run(made, source, payer=payer, rows=rows, engine=engine, cluster=cluster, **hooks)
    for text in release.warnings:
        if text not in known:
            _warn_after_payment(text)
    return release


def _warn_after_payment(text: str) -> None:
    """Show a warning even where warnings are errors: an exception would lose a release that is paid for."""
    try:
        warnings.warn(text, RepsynthWarning, stacklevel=3)
    except RepsynthWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, RepsynthWarning, stacklevel=3)


def _counted(on_step: OnStep, of: int) -> Callable[[str], None]:
    """Count the steps for a function that is told only their names."""
    done = itertools.count()
    return lambda step: on_step(step, next(done), of)


def draft_schema(
    table: Any,
    *,
    label: str | None = None,
    metadata: "str | Path | dict[str, Any] | None" = None,
    read: ReadOptions = AS_USUAL,
) -> str:
    """Return the text of a `schema.toml` to be completed by hand. It is read from the data: NOT private.

    `metadata` of SDV, a file or a dictionary, gives the types of columns.

    >>> import pyarrow as pa
    >>> print(draft_schema(pa.table({"age": [30, 41, 52]})).splitlines()[-3])
    type = "integer"
    """
    return draft(table, label=label, metadata=metadata, read=read).text


def draft(
    table: Any,
    *,
    label: str | None = None,
    metadata: "str | Path | dict[str, Any] | None" = None,
    read: ReadOptions = AS_USUAL,
) -> "Draft":
    """Return the draft of a schema with the reason for each column: PRIVATE."""
    from repsynth.curator.infer import make_draft
    from repsynth.io.sources import open_source

    return make_draft(open_source(table, read), label=label, decimal=read.decimal, described=_described(metadata))


def _described(metadata: "str | Path | dict[str, Any] | None") -> Any:
    from repsynth.schema.sdv import from_sdv, load_sdv

    if metadata is None:
        return None
    return from_sdv(metadata) if isinstance(metadata, dict) else load_sdv(metadata)


def measure_schema(
    table: Any,
    *,
    epsilon: float,
    delta: float = 1e-10,
    one_row_per_person: bool = False,
    label: str | None = None,
    ids: Sequence[str] = (),
    metadata: "str | Path | dict[str, Any] | None" = None,
    public_rows: int | None = None,
    ledger: "str | Path | Ledger | None" = None,
    dataset: str | None = None,
    read: ReadOptions = AS_USUAL,
) -> "MeasuredDraft":
    """Find a schema by charged, noisy measurements of a table. It may be published and needs no confirmation.

    The charge protects one row, so `one_row_per_person` must be declared. Only the names of the columns count as
    public. `ids` are columns that identify people, as are the ids of SDV's `metadata`: they are not measured. The
    account of every release that is made with the schema includes the cost.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> people = pa.table({"age": [30, 41, 55] * 3000, "smoker": ["yes", "no", "no"] * 3000})
    >>> draft = measure_schema(people, epsilon=0.5, one_row_per_person=True, label="smoker")
    >>> schema = parse_schema(draft.text)
    >>> schema.label, schema.columns[0].max
    ('smoker', 99)
    """
    from repsynth.curator.infer import check_described
    from repsynth.curator.private_schema import measure_schema as measure
    from repsynth.io.sources import open_source
    from repsynth.run.payment import open_payer

    if read.decimal not in (None, "."):
        raise ConfigError("a measured schema reads numbers with a decimal point only; leave --decimal out")
    payer = open_payer(ledger, dataset)
    source = open_source(table, read)
    described = {} if metadata is None else check_described(_described(metadata), source.names)
    return measure(
        source,
        epsilon=epsilon,
        delta=delta,
        one_row_per_person=one_row_per_person,
        label=label,
        ids=list(dict.fromkeys([*ids, *(name for name, told in described.items() if told.kind == "id")])),
        rows=public_rows,
        payer=payer,
    )


def check_table(table: Any, schema: Schema | str | Path, *, read: ReadOptions = AS_USUAL) -> "TableCheck":
    """See what the schema makes of the table. PRIVATE; nothing is written or spent.

    Tells for each column how many cells cannot be read, are clipped or count as missing, and what to declare.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> schema = parse_schema('''
    ... one_row_per_person = true
    ... columns.age = {type = "integer", min = 18, max = 99}
    ... ''')
    >>> check_table(pa.table({"age": [30, 41, 120, None]}), schema).columns[0].above
    0.25
    """
    from repsynth.curator.check import check_table as check
    from repsynth.io.sources import open_source

    return check(open_source(table, read), read.declared(_schema(schema)))


def risk(
    table: Any, release: "Release | str | Path", path: str | Path, *, read: ReadOptions = AS_USUAL
) -> "DossierSummary":
    """Write the curator's dossier, each record's own loss, to a Parquet file. It and the summary are PRIVATE.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, model="naive-bayes")
    >>> risk(sim.table, release, Path(tempfile.mkdtemp()) / "dossier.parquet").records
    6000
    """
    from repsynth.curator.dossier import write_dossier
    from repsynth.io.sources import open_source
    from repsynth.io.write import check_table_path

    check_table_path(Path(path), (".parquet",))
    return write_dossier(open_source(table, read), _release(release), Path(path))


def inspect_release(release: "Release | str | Path") -> dict[str, Any]:
    """Return what a release cost and how the loss is spread: what `repsynth inspect --json` prints."""
    from repsynth.release.account import release_data

    return release_data(_release(release))


def evaluate(
    train: Any,
    synthetic: Any = None,
    schema: Schema | str | Path | None = None,
    *,
    holdout: Any = None,
    release: "Release | str | Path | None" = None,
    label: str | None = None,
    folder: str | Path | None = None,
    skip: Collection[str] = (),
    read: ReadOptions = AS_USUAL,
    on_step: OnStep = _silent,
) -> "Evaluation":
    """Measure what a synthetic table is good for. PRIVATE: it is computed from the training table.

    Without a synthetic table, one is drawn from the release; without a schema, the release's is used. `holdout`
    are real rows that the release was not made from. Measures that need them are otherwise left out (`left_out`).
    With a `folder`, all numbers are written there. Steps in `skip` are left out. `read` describes the real tables.

    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> found = evaluate(sim.table.slice(0, 500), sim.table.slice(500, 500), sim.schema)
    >>> found.publishable, found["one-way distance"].value < 0.1, "prediction by boosting" in found.left_out
    (False, True, True)
    """
    from repsynth.release.store import check_private

    if synthetic is None and release is None:
        raise ConfigError("give a synthetic table, or a release to draw one from")
    need_scikit_learn()
    from repsynth.evaluation.evaluate import evaluate_tables
    from repsynth.evaluation.export import STEPS, check_folder, write_evaluation
    from repsynth.evaluation.inputs import Inputs, agreed_schema

    if folder is not None:
        check_folder(Path(folder))
        check_private(Path(folder))
    step = _counted(on_step, len(STEPS) + 1)
    step("reading")
    loaded = None if release is None else _release(release)
    agreed = agreed_schema(None if schema is None else read.declared(_schema(schema)), loaded)
    drawn = loaded.sample(seed=0) if synthetic is None and loaded is not None else synthetic
    found = evaluate_tables(Inputs.open(train, drawn, holdout, agreed, label, read), loaded, step, skip)
    if folder is not None:
        write_evaluation(found, Path(folder))
    return found


def expected_errors(release: "Release | str | Path") -> "Expected":
    """Return standard errors of shares, means and the model's tables from a release alone: they are public."""
    from repsynth.release.accuracy import expected_errors as expected

    return expected(_release(release))


def audit(
    schema: Schema | str | Path,
    table: Any = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    model: "str | Model | None" = None,
    weights: "str | Rule | None" = None,
    settings: Settings | str | Path | None = None,
    scores_from: "Release | PriorScores | str | Path | None" = None,
    read: ReadOptions = AS_USUAL,
    runs: int = 100_000,
    on_step: OnStep = _silent,
) -> "Iterator[Finding]":
    """Attack the mechanism and compare with its claims, on a table or on one made up from the schema.

    The settings are those of `plan`; give further ones in `settings`. With a `table`, the findings are PRIVATE.

    >>> from repsynth import datasets
    >>> findings = audit(datasets.load("sim").schema, epsilon=1.0, model="naive-bayes", runs=1000)
    >>> sorted({finding.target for finding in findings})[:2]
    ['canary', 'canary alone']
    """
    from repsynth.attacks.audit import audit as attack
    from repsynth.attacks.targets import made_up_table
    from repsynth.io.sources import open_source

    given = _common(locals())
    made = plan(schema, settings=settings_of(settings, given), scores_from=scores_from, read=read)
    source = made_up_table(made.schema) if table is None else open_source(table, read)
    return attack(made, source, runs=runs, on_target=_counted(on_step, 5))


def attack(
    table: Any,
    schema: Schema | str | Path,
    folder: str | Path,
    *,
    holdout: Any = None,
    epsilon: float | None = None,
    delta: float | None = None,
    model: "str | Model | None" = None,
    weights: "str | Rule | None" = None,
    settings: Settings | str | Path | None = None,
    scores_from: "Release | PriorScores | str | Path | None" = None,
    read: ReadOptions = AS_USUAL,
    targets: int = 100,
    runs: int = 64,
    jobs: int = 1,
    seed: int = 0,
    power: bool = False,
    on_step: OnStep = _silent,
) -> "Exposure":
    """Attack records of a table as strangers could, and see who would be found. PRIVATE; nothing is released.

    `holdout` is a table of similar people who are not in it; without one, attacks that need it are left out. The
    settings are those of `plan`; give further ones in `settings`. Every run is kept in the folder, and the same
    call resumes where it stopped. With `power`, the attacks are also made without noise: an attack that finds
    nobody there proves nothing.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> train, others = sim.table.slice(0, 500), sim.table.slice(3000, 300)
    >>> found = attack(train, sim.schema, Path(tempfile.mkdtemp()) / "attack", holdout=others, targets=10, runs=8,
    ...                epsilon=1.0, model="naive-bayes")
    >>> found.publishable, found.exceeded
    (False, False)
    """
    need_scikit_learn()
    from repsynth.attacks.results import attack as carry_out
    from repsynth.io.sources import open_source

    given = _common(locals())
    made = plan(schema, settings=settings_of(settings, given), scores_from=scores_from, read=read)
    opened = open_source(table, read)
    others = None if holdout is None else open_source(holdout, read)
    total = 0
    step = itertools.count()

    def on_begin(done: int, of: int) -> None:
        nonlocal total, step
        total, step = of, itertools.count(done)
        on_step("attacking", next(step), total)

    return carry_out(
        made,
        opened,
        others,
        Path(folder),
        targets=targets,
        runs=runs,
        jobs=jobs,
        seed=seed,
        power=power,
        on_begin=on_begin,
        on_done=lambda: on_step("attacking", next(step), total),
    )


def need_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError("this needs scikit-learn; pip install 'repsynth[evaluate]'") from None


def _release(release: "Release | str | Path") -> "Release":
    from repsynth.release.release import Release

    return release if isinstance(release, Release) else Release.load(release)


def _schema(schema: Schema | str | Path) -> Schema:
    if not isinstance(schema, Schema | str | Path):
        raise ConfigError("the schema must be a Schema, or the path of a schema.toml")
    if isinstance(schema, Schema) and has_controls(schema_to_dict(schema)):
        raise SchemaError(["a name or a value of the schema has a control character; take it out"])
    return schema if isinstance(schema, Schema) else load_schema(schema)


def _borrowed(source: "Release | PriorScores | str | Path | None") -> "PriorScores | None":
    from repsynth.scoring.transfer import PriorScores

    if source is None or isinstance(source, PriorScores):
        return source
    from repsynth.release.verify import borrow

    return borrow(source)

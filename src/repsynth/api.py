"""The Python functions: what the command line does, without the command line."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from repsynth.data.reading import READING, Reading, taken_from
from repsynth.errors import ConfigError, RepsynthWarning, SchemaError, has_controls
from repsynth.planning.cautions import cautions
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import PARTS, Settings, keywords, read_settings, with_given
from repsynth.schema import Schema, load_schema, schema_to_dict

if TYPE_CHECKING:
    from repsynth.attacks.exposure import Exposure
    from repsynth.auditing.bounds import Finding
    from repsynth.curator.check import TableCheck
    from repsynth.curator.dossier import Summary
    from repsynth.curator.private_schema import MeasuredDraft
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.accuracy import Expected
    from repsynth.release.release import Release
    from repsynth.scoring.borrowed import Borrowed

F = TypeVar("F", bound=Callable[..., Any])


def _shows(*names: str) -> Callable[[F], F]:
    """Show keywords in the signature of a function, where `help` and editors look for them."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        function.__signature__ = signature.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]
        return function

    return decorate


takes_settings = _shows(*PARTS, *keywords())
reads_a_table = _shows(*READING)


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
    >>> list(plan(datasets.load("sim").schema, epsilon=1.0, model="naive-bayes").charges)
    ['count', 'coarse histograms', 'scores', 'refined histograms', 'fine histograms', 'sums']
    """
    return make_plan(_schema(schema), _settings(settings, knobs), _borrowed(scores_from))


@reads_a_table
@takes_settings
def synthesize(
    table: Any,
    schema: Schema | str | Path,
    *,
    settings: Settings | str | Path | None = None,
    ledger: "str | Path | Ledger | None" = None,
    dataset: str | None = None,
    engine: str | None = None,
    cluster: Any = None,
    scores_from: "Release | Borrowed | str | Path | None" = None,
    **knobs: Any,
) -> "Release":
    """Read a table once, spend the budget, and return a differentially private release.

    `table` is a pandas or polars data frame, a pyarrow table, the path of a file or a folder, a list of paths, the
    address of a database, or a Dask or Spark DataFrame. `delimiter`, `encoding` and `decimal` describe a CSV file,
    `table_name` or `query` select from a database. The budget is one of `epsilon` (with `delta`), `mu` or `rho`.
    `model`, `weights` and `scorer` are names or objects; settings of these parts are further keywords.
    `scores_from` is an earlier release of a table with the same columns, or its folder: its score function and
    threshold are used again and cost this table nothing.

    Everything is checked before data is opened. With a `ledger`, the cost is reserved in the budget of `dataset`
    before the data is opened, and a run that is interrupted has spent it. With `engine="dask"` or `"spark"` the
    workers of a `cluster` (an address, a Dask `Client` or a `SparkSession`; by default the current or a local one)
    read the table and add up; the release is the same bit for bit.

    Warns (`RepsynthWarning`) about problems that are known before any budget is spent, and afterwards about those
    that the release shows; `release.warnings` lists all of them.

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
    from repsynth.data.sources import open_source
    from repsynth.pipeline.payment import open_payer
    from repsynth.pipeline.run import run

    made, reading = _planned(schema, settings, scores_from, knobs)
    known = cautions(made, made.public_rows)
    for text in known:
        warnings.warn(text, RepsynthWarning, stacklevel=2)
    source = open_source(table, reading)
    payer = open_payer(ledger, dataset)
    release = run(made, source, payer=payer, engine=engine, cluster=cluster)
    for text in release.warnings:
        if text not in known:
            _warn_of_what_is_paid_for(text)
    return release


def _warn_of_what_is_paid_for(text: str) -> None:
    """Show a warning even where warnings are errors: an exception would lose a release that is paid for."""
    try:
        warnings.warn(text, RepsynthWarning, stacklevel=3)
    except RepsynthWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, RepsynthWarning, stacklevel=3)


@reads_a_table
def draft_schema(
    table: Any, *, label: str | None = None, metadata: "str | Path | dict[str, Any] | None" = None, **how: Any
) -> str:
    """The text of a `schema.toml` to be completed by hand, read from the data: NOT private.

    `metadata` of SDV, a file or a dictionary, gives the types of columns.

    >>> import pyarrow as pa
    >>> print(draft_schema(pa.table({"age": [30, 41, 52]})).splitlines()[-3])
    type = "integer"
    """
    from repsynth.curator.draft import make_draft
    from repsynth.data.sources import open_source
    from repsynth.schema.sdv import from_sdv, load_sdv

    reading = _reading(how)
    described = None
    if metadata is not None:
        described = from_sdv(metadata) if isinstance(metadata, dict) else load_sdv(metadata)
    source = open_source(table, reading)
    return make_draft(source, label=label, decimal=reading.decimal, described=described).text


@reads_a_table
def measure_schema(
    table: Any,
    *,
    epsilon: float,
    delta: float = 1e-10,
    one_row_per_person: bool = False,
    label: str | None = None,
    ids: Sequence[str] = (),
    public_rows: int | None = None,
    ledger: "str | Path | Ledger | None" = None,
    dataset: str | None = None,
    **how: Any,
) -> "MeasuredDraft":
    """A schema found by charged, noisy measurements of a table: it may be published and needs no confirmation.

    The charge protects one row, so `one_row_per_person` must be declared. Only the names of the columns are taken
    as public. `ids` are columns that identify people: they are not measured. The cost is part of the account of
    every release that is made with the schema.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> people = pa.table({"age": [30, 41, 55] * 3000, "smoker": ["yes", "no", "no"] * 3000})
    >>> draft = measure_schema(people, epsilon=0.5, one_row_per_person=True, label="smoker")
    >>> schema = parse_schema(draft.text)
    >>> schema.label, schema.columns[0].max
    ('smoker', 99)
    """
    from repsynth.curator.private_schema import measure_schema as measure
    from repsynth.data.sources import open_source
    from repsynth.pipeline.payment import open_payer

    payer = open_payer(ledger, dataset)
    reading = _reading(how)
    return measure(
        open_source(table, reading),
        epsilon=epsilon,
        delta=delta,
        one_row_per_person=one_row_per_person,
        label=label,
        ids=ids,
        rows=public_rows,
        decimal=reading.decimal,
        payer=payer,
    )


@reads_a_table
def check_table(table: Any, schema: Schema | str | Path, **how: Any) -> "TableCheck":
    """What the schema makes of the table, before anything is paid: PRIVATE, and nothing is written or spent.

    For each column: how many cells cannot be read, are clipped or count as missing, and what to declare.

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
    from repsynth.data.sources import open_source

    reading = _reading(how)
    return check(open_source(table, reading), reading.declared(_schema(schema)))


@reads_a_table
def risk(table: Any, release: "Release | str | Path", path: str | Path, **how: Any) -> "Summary":
    """Write the curator's dossier, each record's own loss, to a Parquet file: PRIVATE, and so is the summary.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, model="naive-bayes")
    >>> risk(sim.table, release, Path(tempfile.mkdtemp()) / "dossier.parquet").records
    6000
    """
    from repsynth.curator.dossier import write_dossier
    from repsynth.data.sources import open_source
    from repsynth.data.write import check_table_path

    check_table_path(Path(path), (".parquet",))
    return write_dossier(open_source(table, _reading(how)), _release(release), Path(path))


def inspect_release(release: "Release | str | Path") -> dict[str, Any]:
    """What a release cost and how the loss is spread, as plain data: what `repsynth inspect --json` prints."""
    from repsynth.release.account import release_data

    return release_data(_release(release))


@reads_a_table
def evaluate(
    train: Any,
    synthetic: Any = None,
    schema: Schema | str | Path | None = None,
    *,
    holdout: Any = None,
    release: "Release | str | Path | None" = None,
    label: str | None = None,
    folder: str | Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
    **how: Any,
) -> "Evaluation":
    """Measure what a synthetic table is good for: PRIVATE, since it is computed from the training table.

    Without a synthetic table, one is drawn from the release; without a schema, it is the release's. What needs a
    holdout, real rows that the release was not made from, is left out where there is none (`left_out` says
    what). With a `folder`, everything is written there, too. `on_step` is told each step before it begins.
    `delimiter` and so on describe the real tables; a synthetic one is read as this library writes it.

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
    from repsynth.evaluation.inputs import Inputs, agreed_schema
    from repsynth.evaluation.written import check_folder, write_evaluation

    if folder is not None:
        check_folder(Path(folder))
        check_private(Path(folder))
    on_step("reading")
    loaded = None if release is None else _release(release)
    reading = _reading(how)
    agreed = agreed_schema(None if schema is None else reading.declared(_schema(schema)), loaded)
    drawn = loaded.sample(seed=0) if synthetic is None and loaded is not None else synthetic
    found = evaluate_tables(Inputs.open(train, drawn, holdout, agreed, label, reading), loaded, on_step)
    if folder is not None:
        write_evaluation(found, Path(folder))
    return found


def expected_errors(release: "Release | str | Path") -> "Expected":
    """Standard errors of shares, means and the model's tables from a release alone: they may be published."""
    from repsynth.release.accuracy import expected_errors as expected

    return expected(_release(release))


@reads_a_table
@takes_settings
def audit(
    schema: Schema | str | Path,
    table: Any = None,
    *,
    settings: Settings | str | Path | None = None,
    runs: int = 100_000,
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
    from repsynth.data.sources import open_source

    made, reading = _planned(schema, settings, scores_from, knobs)
    source = made_up_table(made.schema) if table is None else open_source(table, reading)
    return attack(made, source, runs=runs)


@reads_a_table
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
    >>> found.publishable, found.exceeded
    (False, False)
    """
    need_scikit_learn()
    from repsynth.attacks.exposure import attack as carry_out
    from repsynth.data.sources import open_source

    made, reading = _planned(schema, settings, scores_from, knobs)
    opened = open_source(table, reading)
    others = None if holdout is None else open_source(holdout, reading)
    return carry_out(
        made, opened, others, Path(folder), targets=targets, runs=runs, jobs=jobs, seed=seed, power=power
    )


def need_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError("this needs scikit-learn; pip install 'repsynth[evaluate]'") from None


def _planned(
    schema: Schema | str | Path, settings: Any, scores_from: Any, knobs: dict[str, Any]
) -> tuple[Plan, Reading]:
    reading = taken_from(knobs)
    made = make_plan(reading.declared(_schema(schema)), _settings(settings, knobs), _borrowed(scores_from))
    return made, reading


def _release(release: "Release | str | Path") -> "Release":
    from repsynth.release.release import Release

    return release if isinstance(release, Release) else Release.load(release)


def _reading(how: dict[str, Any]) -> Reading:
    """How to read a table, by keywords; there are no others."""
    reading = taken_from(how)
    for name in how:
        raise TypeError(f"unexpected keyword '{name}'")
    return reading


def _schema(schema: Schema | str | Path) -> Schema:
    if not isinstance(schema, Schema | str | Path):
        raise ConfigError("the schema must be a Schema, or the path of a schema.toml")
    if isinstance(schema, Schema) and has_controls(schema_to_dict(schema)):
        raise SchemaError(["a name or a value of the schema has a control character; take it out"])
    return schema if isinstance(schema, Schema) else load_schema(schema)


def _borrowed(source: "Release | Borrowed | str | Path | None") -> "Borrowed | None":
    from repsynth.scoring.borrowed import Borrowed

    if source is None or isinstance(source, Borrowed):
        return source
    from repsynth.release.verify import borrow

    return borrow(source)


def _settings(settings: Settings | str | Path | None, knobs: dict[str, Any]) -> Settings:
    if isinstance(settings, Settings):
        if knobs:
            raise ConfigError(f"give {', '.join(knobs)} to the settings themselves, not beside them")
        return settings
    return Settings.of(**with_given({} if settings is None else read_settings(Path(settings)), knobs))

"""A new model, scorer, rule, source, engine or output format is one file and one line in a registry.

The toys below are those files; the fixture `toys` holds the lines. With them every command runs, and a toy release
is saved, loaded and audited like any other.
"""

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from checks import check_contribution, check_replay, check_spends_its_plan, record_run, records_of
from conftest import ALL_TYPES, make_people
from msgspec import Meta

import repsynth
import repsynth.engine as engine_names
from repsynth.arrays import Floats, Ints
from repsynth.cli import main
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.engine import Kernel
from repsynth.io import sources, write
from repsynth.io.encode import EncodedTable
from repsynth.io.records import Records, no_records
from repsynth.io.source import File
from repsynth.io.sources import Source, open_source
from repsynth.mechanism.meter import Meter
from repsynth.models.base import Hooks, Made, Model, Share, StoredModel
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import Charge
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema
from repsynth.scoring import SCORERS
from repsynth.scoring.base import NAT, Arrays, Scorer
from repsynth.scoring.stage import RunPlan, StageOne
from repsynth.scoring.weights import FULL, RULES, Rule
from repsynth.storage import ints

# --- a model: the histograms, scaled by a weighted count --------------------------------------------------


@dataclass(frozen=True)
class Mass:
    """Each record adds its weight."""

    stage: StageOne
    name: str = "mass"
    sensitivity: float = float(FULL)
    unit: int = FULL
    weighted: bool = True

    def total(self, records: Records) -> Ints:
        return np.array([self.stage.weights.of(self.stage.score.of(records)).sum()], dtype=np.int64)


class Toy(Model, frozen=True):
    """Independent columns: a toy."""

    name: ClassVar[str] = "toy"
    purposes: ClassVar[Mapping[str, str]] = {"mass": "a weighted count"}
    boost: Annotated[float, Meta(ge=1, le=9, description="does nothing")] = 2.0

    def shares(self, schema: Schema) -> tuple[Share, ...]:
        return (Share("mass", 1.0),)

    def measure(self, meter: Meter, stage: StageOne, plan: RunPlan, hooks: Hooks) -> "ToyFit":
        hooks.on_step("mass")
        return ToyFit(stage, meter.measure(Mass(stage), mu=plan.charges["mass"].mu))

    def load(self, stored: StoredModel) -> "ToyFit":
        return ToyFit(stored.stage, ints(stored.arrays["mass"], 1))


@dataclass(frozen=True)
class ToyFit:
    stage: StageOne
    mass: Ints

    def kernels(self, *, choices: bool = True) -> dict[str, Mass]:
        return {"mass": Mass(self.stage)}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        return np.ones(records.rows), np.ones(records.rows)

    def label_masses(self) -> None:
        """There are none."""

    @property
    def sampler(self) -> "ToyFit":
        return self

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        return self.stage.histograms.draw(rows, generator)

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"mass": self.mass}


# --- a scorer with a measurement of its own ---------------------------------------------------------------


@dataclass(frozen=True)
class Zeros:
    """How many records have code 0 in a column."""

    column: str
    name: str = "zeros"
    sensitivity: float = 1.0
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        return np.array([np.sum(records.codes[self.column] == 0)], dtype=np.int64)


class Nonzero(Scorer, frozen=True):
    """Who has another code than 0 in the first column."""

    name: ClassVar[str] = "nonzero"

    def shares(self, schema: Schema) -> Mapping[str, float]:
        return {"zeros": 0.01}

    def measure(
        self, meter: Meter, histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "NonzeroScore":
        column = histograms.bins[0].column.name
        return NonzeroScore(column, meter.measure(Zeros(column), mu=charges["zeros"].mu))

    def load(
        self, histograms: Histograms, label: str | None, arrays: Arrays, sigmas: Mapping[str, float]
    ) -> "NonzeroScore":
        return NonzeroScore(histograms.bins[0].column.name, ints(arrays["zeros"], 1))


@dataclass(frozen=True)
class NonzeroScore:
    column: str
    zeros: Ints
    lowest: int = 0
    columns: int = 1

    def of(self, records: Records) -> Ints:
        return np.where(records.codes[self.column] > 0, records.codes[self.column] % 7, 0) * NAT

    def tails(self, exact: Histograms, most: float = 1.0) -> None:
        return None

    def kernels(self) -> dict[str, Zeros]:
        return {"zeros": Zeros(self.column)}

    def dump(self) -> Arrays:
        return {"zeros": self.zeros}


# --- a rule, an engine, a source and a format -------------------------------------------------------------


class Half(Rule, frozen=True):
    """Half the weight above the threshold."""

    name: ClassVar[str] = "half"

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 0, 0.5, 1.0)


@dataclass(frozen=True)
class Scattered:
    """As on a cluster: kernels are carried to parts of the table, whose sums come back in any order."""

    data: EncodedTable
    sums: ClassVar[int] = 0
    rows_per_person: ClassVar[int] = 1
    units: ClassVar[int] = 1

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "Scattered":
        return cls(EncodedTable(source, schema))

    def sum(self, kernel: Kernel) -> Ints:
        Scattered.sums += 1
        carried = pickle.dumps(kernel)
        parts = [records.take(np.arange(records.rows) % 3 == k) for records in self.data for k in (2, 0, 1)]
        return sum((pickle.loads(carried).total(part) for part in parts), kernel.total(no_records()))

    def per_record(self) -> Iterator[Records]:
        return iter(self.data)


def open_psv(file: File) -> Source:
    """Cells between pipes."""
    header, *rows = [line.split("|") for line in file.path.read_text(encoding="utf-8").splitlines()]

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = {name: [row[header.index(name)] or None for row in rows] for name in columns}
        yield pa.record_batch({name: pa.array(cells, pa.string()) for name, cells in chosen.items()})

    nothing = (None,) * len(header)
    return Source("psv", tuple(header), nothing, batches)


class PsvWriter:
    """Cells between pipes."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.lines = path, ["|".join(schema.names)]

    def close(self) -> None:
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def ready(self, piece: pa.Table) -> list[str]:
        rows = (row.values() for row in piece.to_pylist())
        return ["|".join("" if cell is None else str(cell) for cell in row) for row in rows]

    def write(self, ready: list[str]) -> None:
        self.lines += ready


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that each takes."""
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setitem(SCORERS, "nonzero", Nonzero)
    monkeypatch.setitem(RULES, "half", Half)
    monkeypatch.setitem(engine_names.ENGINES, "scattered", f"{__name__}:Scattered")
    monkeypatch.setitem(sources.FILES, ".psv", f"{__name__}:open_psv")
    monkeypatch.setitem(write.WRITERS, ".psv", PsvWriter)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    table = make_people(800)
    with closing(PsvWriter(tmp_path / "people.psv", table.schema)) as writer:
        writer.write(writer.ready(table))
    return tmp_path


TOYS = ["--model", "toy", "--boost", "3", "--scorer", "nonzero", "--weights", "half", "--epsilon", "2"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr()
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.usefixtures("toys")
def test_every_command_knows_a_new_part_of_each_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = ["--schema", folder / "schema.toml"]
    ledger = folder / "ledger.db"
    charges = ["count", "coarse histograms", "zeros", "scores", "refined histograms", "fine histograms", "mass"]

    plan = printed(capsys, "plan", *schema, *TOYS, "--save", folder / "plan.toml", "--json")
    assert [row["name"] for row in plan["measurements"]] == charges
    assert "boost = 3.0  # does nothing (2)" in (folder / "plan.toml").read_text()

    printed(capsys, "ledger", "init", ledger, "--epsilon", "4", "--json")
    made = printed(
        *(capsys, "synthesize", folder / "people.psv", *schema, "--plan", folder / "plan.toml", "--json"),
        *("--ledger", ledger, "--engine", "scattered", "-o", folder / "out.psv", "--release", folder / "release"),
    )
    assert made["model"] == "toy"
    assert made["scorer"] == "nonzero"
    assert made["weights"] == "half"
    assert Scattered.sums >= len(charges)
    assert (folder / "out.psv").read_text().startswith("person|age|")

    spent = printed(capsys, "ledger", "show", ledger, "--json")["datasets"][0]
    assert spent["runs"][0]["finished"]
    assert spent["spent"]["mu"] == pytest.approx(made["mu"], rel=1e-9)

    seen = printed(capsys, "inspect", folder / "release", "--json")
    assert seen == {key: made[key] for key in seen}
    assert [event["name"] for event in seen["measurements"]] == charges
    assert [event["weighted"] for event in seen["measurements"]] == [False] * 4 + [True] * 3

    printed(capsys, "sample", folder / "release", "-n", "7", "-o", folder / "more.psv", "--json")
    assert len((folder / "more.psv").read_text().splitlines()) == 8
    risk = printed(
        *(capsys, "risk", folder / "people.psv", "--release", folder / "release"),
        *("-o", folder / "dossier.parquet", "--show", "--json"),
    )
    assert risk["summary"]["records"] == 800

    found = printed(capsys, "audit", *schema, *TOYS, "--runs", "2000", "--json")
    assert not found["exceeded"]
    assert {finding["measurement"] for finding in found["findings"]} == {*charges, "all"}
    assert main(["plan", *map(str, schema), "--epsilon", "1", "--model", "mst", "--boost", "3"]) == 2
    assert "boost belongs to the model toy; mst has none" in capsys.readouterr().err
    assert printed(capsys, "plan", *schema, "--epsilon", "1", "--boost", "3", "--json")["model"] == "toy"


@pytest.mark.usefixtures("toys")
def test_the_claims_are_checked_for_a_new_part_as_for_any_other() -> None:
    schema, table = parse_schema(ALL_TYPES), make_people(60)
    plan = make_plan(schema, Settings.of(mu=0.5, model=Toy(boost=4), scorer=Nonzero(), weights=Half()))
    check_spends_its_plan(plan, table)
    check_replay(plan, table, absent=3)
    _, measured = record_run(plan, table)
    for m in measured:
        check_contribution(m.statistic, records_of(table, schema))


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim", "toy"])
def test_an_engine_elsewhere_gives_the_same_bits(model: str) -> None:
    """Kernels are picklable, and sums do not depend on the partition."""
    from checks import same_release

    schema, source = parse_schema(ALL_TYPES), open_source(make_people(500))
    plan = make_plan(schema, Settings.of(epsilon=3.0, model=model))
    here, there = (run(plan, source, noise_seed=5, engine=engine) for engine in ("local", "scattered"))
    assert same_release(here, there)


def test_a_part_that_could_not_be_loaded_again_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = repsynth.Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", repsynth.Budget.approximate(epsilon=4.0, delta=1e-6))
    schema, table = parse_schema(ALL_TYPES), make_people(50)
    for part in ({"weights": Half()}, {"scorer": Nonzero()}, {"model": Toy()}, {"weights": lambda score: 1.0}):
        with pytest.raises(repsynth.ConfigError, match=r"cannot be saved with a release.*Nothing was spent"):
            repsynth.synthesize(table, schema, epsilon=1.0, ledger=ledger, **part)
    assert ledger.balance("people").spendings == ()


def test_a_release_with_a_part_that_this_version_lacks_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, table = parse_schema(ALL_TYPES), make_people(50)
    with monkeypatch.context() as patch:
        patch.setitem(RULES, "half", Half)
        repsynth.synthesize(table, schema, epsilon=1.0, weights="half").save(tmp_path / "release")
    with pytest.raises(repsynth.ReleaseError, match="weight rule 'half', which this version lacks"):
        repsynth.Release.load(tmp_path / "release")

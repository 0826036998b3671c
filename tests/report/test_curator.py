"""The curator's page: what it says is what the data says; it is private by name and place; nothing breaks it."""

import html
import json
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Browser, needs_axe, needs_browser
from conftest import make_stays
from made import NASTY, nasty_release, nasty_table, stays_release

from repsynth import Release, datasets, evaluate, risk
from repsynth.attacks.results import BEST, REPS, UNIFORM, Exposure
from repsynth.cli import main
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.export import STAMP, Measure
from repsynth.evaluation.inputs import Inputs
from repsynth.io.records import MISSING, Records
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.formatting import upper
from repsynth.report.curator import (
    OUTLIER_WEIGHTS,
    Cells,
    CuratorFacts,
    _verdict,
    columns_side_by_side,
    curator_facts,
)
from repsynth.report.page import CURATOR_STEPS, curator_page, public_page
from repsynth.run.run import run
from repsynth.schema import Boolean, Category, Integer, Schema


@dataclass(frozen=True)
class Made:
    """A release of a small table, and its curator's page."""

    release: Release
    folder: Path
    train: pa.Table
    steps: list[str]
    facts: CuratorFacts
    page: Path


def facts_and_page(folder: Path, train: pa.Table, *more: pa.Table, **options: Any) -> tuple[CuratorFacts, str]:
    """Make a page once, and keep the facts it was made of."""
    kept: list[CuratorFacts] = []

    def facts(*arguments: Any) -> CuratorFacts:
        kept.append(curator_facts(*arguments))
        return kept[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("repsynth.report.curator.curator_facts", facts)
        page = curator_page(folder, train, *more, **options)
    return kept[0], page


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, table = tmp_path_factory.mktemp("curator"), datasets.load("sim").table
    train, holdout, steps = table.slice(0, 500), table.slice(3000, 200), list[str]()
    settings = Settings.of(epsilon=4.0, delta=1e-6, model="mst", public_rows=500, outlier_weight=0.2)
    release = run(make_plan(datasets.load("sim").schema, settings), open_source(train), noise_seed=1)
    saved = release.save(folder / "release")
    pq.write_table(train.slice(0, 100), folder / "train.parquet")
    facts, text = facts_and_page(saved, train, holdout, on_step=steps.append)
    page = folder / "private-report.html"
    page.write_text(text, encoding="utf-8")
    return Made(release, saved, train, steps, facts, page)


def test_each_step_is_told_before_it_begins(sim: Made) -> None:
    assert tuple(step.split(" (all")[0] for step in sim.steps) == CURATOR_STEPS


def test_the_folder_of_an_evaluation_is_shown_instead_of_computed_again(sim: Made, tmp_path: Path) -> None:
    holdout, steps = datasets.load("sim").table.slice(3000, 200), list[str]()
    folder = tmp_path / "evaluation"
    evaluate(sim.train, release=sim.folder, holdout=holdout, folder=folder)
    facts, page = facts_and_page(sim.folder, sim.train, holdout, evaluation=folder, on_step=steps.append)
    assert steps == ["reading", "losses", "drawing"]
    assert page == sim.page.read_text(encoding="utf-8")
    assert facts.measures == sim.facts.measures
    with pytest.raises(DataError, match="other numbers of rows; give the tables of that evaluation"):
        facts_and_page(sim.folder, sim.train.slice(1), holdout, evaluation=folder)


def test_every_screen_says_that_it_is_private(sim: Made) -> None:
    text = sim.page.read_text(encoding="utf-8")
    assert "<title>PRIVATE" in text
    assert STAMP in html.unescape(text)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert len(headings) == 8
    assert headings[0].startswith("Verdict"), "the answer comes first"
    assert all("PRIVATE" in heading for heading in headings)
    assert re.search(r"\.banner \{ position: sticky; top: 0;", text)
    assert re.search(r'@top-center \{ content: "PRIVATE', text)
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\"' )<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert len(text.encode()) < 3_000_000


def test_the_public_page_holds_nothing_of_it(sim: Made) -> None:
    public = public_page(sim.folder)
    assert "PRIVATE" not in public.replace("NOT PRIVATE", "")
    assert all(chart.words not in html.unescape(public) for chart in sim.facts.columns)


def test_real_and_synthetic_stand_beside_each_other_for_every_column(sim: Made) -> None:
    names = [column.name for column in sim.release.schema.learned]
    assert sorted(chart.title for chart in sim.facts.columns) == sorted(names)
    (label,) = [chart for chart in sim.facts.columns if chart.title == "label"]
    made = sim.release.sample(seed=0)
    for value, real, synthetic in label.rows:
        for shown, table in ((real, sim.train), (synthetic, made)):
            cells = [str(cell) for cell in table["label"].to_pylist()]
            assert shown == f"{cells.count(value) / len(cells):.2%}"
    assert len(sim.facts.pairs) == 8
    for chart in [*sim.facts.columns, *sim.facts.pairs]:
        for place in (1, 2):
            assert abs(sum(float(row[place].rstrip("%")) for row in chart.rows) - 100) < 0.5


def test_who_weighs_less_is_counted(sim: Made) -> None:
    from repsynth.evaluation.points import records_of

    records = records_of(sim.train, sim.release.schema)
    weight = sim.release.weights.of(sim.release.score.of(records)) / 4096
    assert sim.facts.who is not None
    values = next(column.values for column in sim.release.schema.discrete if column.name == "c1")
    rows = {row[0]: row for row in sim.facts.who.rows}
    inside = records.codes["c1"] == 0
    row = rows[f"c1 = {values[0]}"]
    assert row[1] == f"{inside.sum():,}"
    assert row[2].startswith(f"{np.mean(weight[inside] < 1):.1%} ±")
    assert row[3] == f"{weight[inside].mean():.3f}"
    less = float(np.mean(weight < 1))
    assert f"{less:.0%} of all records" in sim.facts.who.words


def test_what_the_records_lose_and_what_other_weights_would_cost(sim: Made) -> None:
    privacy = sim.release.privacy
    assert sim.facts.spread.rows[-1][1] == upper(float(sim.release.privacy.epsilon), 3)
    assert sim.facts.costs is not None
    rows = {row[0]: row for row in sim.facts.costs.rows}
    assert len(rows) == len(OUTLIER_WEIGHTS)
    assert rows["weight 0.2"][1] == upper(privacy.outlier_epsilon, 3)
    assert rows["weight 1"][1:4] == (upper(privacy.epsilon, 3), upper(privacy.epsilon, 3), "0.0%")
    assert rows["weight 0"][1] == upper(float(privacy.epsilon_at(0.0)), 3)
    lost = [float(row[3].rstrip("%")) for row in sim.facts.costs.rows]
    assert lost == sorted(lost, reverse=True)


def test_measures_are_sorted_into_a_verdict() -> None:
    def measure(name: str, value: float, independent: float | None) -> Measure:
        return Measure(name=name, what="", value=value, best=0.0, floor=0.1, independent=independent)

    given = [measure("a", 0.15, 1.1), measure("b", 0.3, 1.1), measure("c", 0.9, 1.1), measure("d", 0.1, None)]
    given += [measure("unknown", 0.2, None), measure("no scale", 0.2, 0.05)]
    assert [names for _, names in _verdict(given)] == ["a; d", "b", "c"]


def test_subgroups_that_pay_come_first(sim: Made) -> None:
    remarks = [bool(row[-1]) for row in sim.facts.subgroups.rows]
    assert remarks == sorted(remarks, reverse=True)


def test_the_best_attack_is_weaker_on_the_most_outlying(sim: Made) -> None:
    found = [float(row[1].rstrip("%")) for row in sim.facts.attack.rows]
    assert len(found) == 10
    assert found[-1] < found[0] <= 100 * sim.release.privacy.advantage + 0.1


# Values and ranges


def test_cells_are_few_named_and_whole() -> None:
    codes = np.concatenate([np.zeros(500, dtype=np.int64), np.arange(1, 401), [MISSING] * 50, [1001] * 50])
    column = Integer(name="gain", min=0, max=1000, special=("?",), missing=True)
    records = Records(rows=1000, codes={"gain": codes})
    cells = Cells.of(column, records, records)
    real, made = cells.fractions()
    assert (cells.names[0], cells.names[-2:]) == ("0", ("?", "missing"))
    assert cells.names[1].startswith("1 to ")
    assert cells.names[-3].endswith(" to 1000")
    assert (real[0], real[-2], real[-1]) == (0.5, 0.05, 0.05)
    assert np.array_equal(real, made)
    assert np.isclose(real.sum(), 1)
    assert cells.moved(np.where(codes == 0, 0.0, 1.0)) == pytest.approx(0.5)  # without its zeros
    assert (cells.moved(np.ones(1000)), cells.moved(np.zeros(1000))) == (0.0, 1.0)


def test_rare_values_are_taken_together() -> None:
    column = Category(name="code", values=tuple(f"v{i}" for i in range(3000)))
    codes = np.minimum(np.arange(6000) // 2, 2999)
    records = Records(rows=6000, codes={"code": codes})
    cells = Cells.of(column, records, records)
    assert len(cells.names) == 12
    assert cells.names[-1] == "all others"
    assert np.isclose(cells.fractions()[0].sum(), 1)
    only = Cells.of(Boolean(name="b"), *[Records(rows=2, codes={"b": np.array([0, 0])})] * 2)
    assert only.names == ("false",)


def test_two_hundred_columns_fit_into_a_small_page() -> None:
    """Charts and their tables are nearly all of a page; here they have as many rows as they can."""
    values = tuple(f"a value with a long name {i}" for i in range(3000))
    columns = (Category(name="column 199", values=values[:40]), Category(name="c", values=values))
    codes = {column.name: np.arange(4000) % column.size for column in columns}
    records = Records(rows=4000, codes=codes)
    inputs = Inputs(Schema(one_row_per_person=True, columns=columns), records, records)
    charts = columns_side_by_side(inputs, dict.fromkeys(codes, 0.0))
    assert len(charts) == 2
    assert max(len((chart.svg + str(chart.rows) + chart.words).encode()) for chart in charts) < 2_500_000 / 201


# The command


def command(sim: Made, *more: str, output: str = "private-report.html") -> list[str]:
    train = str(sim.folder.parent / "train.parquet")
    return ["report", str(sim.folder), "--curator", "--train", train, "-o", output, *more]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "report.html"], "give -o private-report.html"),
        (["-o", "release/private-report.html"], "is inside a release folder, which may be published"),
        (["-o", "release/deep/private-report.html"], "is inside a release folder, which may be published"),
        (["-o", "private-report.pdf"], ".html"),
        (["--attack", "nowhere"], "no result of an attack"),
        (["--holdout", "none.csv"], "none.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    sim: Made, arguments: list[str], said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release" / "deep").mkdir(parents=True)
    (tmp_path / "release" / "release.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    assert main(command(sim, *arguments)) == 2
    captured = capsys.readouterr().err
    assert said in captured
    assert "Traceback" not in captured
    assert sorted(tmp_path.rglob("*")) == before


def test_tables_go_with_the_private_page_alone(
    sim: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "private-report.html")
    assert main(["report", str(sim.folder), "--train", "people.csv", "-o", output]) == 2
    assert "add --curator" in capsys.readouterr().err
    assert main(["report", str(sim.folder), "--curator", "-o", output]) == 2
    assert "--train" in capsys.readouterr().err
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "release.json").write_bytes((sim.folder / "release.json").read_bytes())
    (tmp_path / "bad" / "arrays.npz").write_bytes(b"x" + (sim.folder / "arrays.npz").read_bytes())
    train = tmp_path / "people.parquet"
    pq.write_table(sim.train, train)
    assert main(["report", str(tmp_path / "bad"), "--curator", "--train", str(train), "-o", output]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not Path(output).exists()


def test_missing_extras_are_named(sim: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "repsynth.report.curator", None)
    with pytest.raises(ConfigError, match=re.escape("repsynth[report,evaluate]")):
        curator_page(sim.folder, sim.train)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=re.escape("repsynth[report,evaluate]")):
        curator_page(sim.folder, sim.train)
    with pytest.raises(ConfigError, match=re.escape("repsynth[report]")):
        public_page(sim.folder)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts without pictures: drawing takes most of the time, and `sim` has every kind."""
    monkeypatch.setattr("repsynth.report.charts._svg", lambda spec, **_: "<svg></svg>")


def made_exposure() -> Exposure:
    """The result of an attack on another plan, made by hand."""
    some = {"value": 0.1, "low": -0.2, "high": 0.4}
    line = {"targets": 5, "trials": 40, "area": some, "advantage": some, "rate_at_1": None, "rate_at_01": None}
    line |= {"proven_epsilon": None, "claimed_epsilon": 1.0, "exceeded": False, "verdict": "uninformative"}
    lines = [
        line | {"method": method, "attack": attack, "decile": decile}
        for method in (UNIFORM, REPS)
        for attack in ("distance", BEST)
        for decile in (1, 10, None)
    ]
    made = {"note": "PRIVATE", "publishable": False, "model": "naive-bayes", "epsilon": 1.0, "delta": 1e-6}
    made |= {"rows": 500, "targets": 10, "runs": 8, "confidence": 0.95, "guesses": [], "notes": []}
    return msgspec.convert(made | {"lines": lines, "exceeded": False}, type=Exposure)


@pytest.mark.usefixtures("undrawn")
def test_the_command_shows_attacks_and_keeps_the_page_to_its_owner(
    sim: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "exposure.json").write_bytes(msgspec.json.encode(made_exposure()))
    output = tmp_path / "private-report.html"
    assert main(command(sim, "--attack", str(tmp_path / "attack"), "--json", output=str(output))) == 0
    said = {"output": str(output), "publishable": False, "bytes": output.stat().st_size}
    assert json.loads(capsys.readouterr().out) == said
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    text = html.unescape(output.read_text(encoding="utf-8"))
    assert "on 10 records in 8 runs" in text
    assert "another plan than this release's: naive-bayes, ε = 1" in text
    assert "prediction by boosting (needs a holdout" in text
    assert main(command(sim, output=str(output))) == 2
    assert "already exists" in capsys.readouterr().err


# In a browser, and with odd releases


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@needs_browser
def test_the_stamp_stays_in_sight_and_on_paper(sim: Made, chromium: Browser, tmp_path: Path) -> None:
    for width in (390, 1280):
        chromium.open(sim.page, width=width)
        chromium.run("scrollTo(0, document.body.scrollHeight)")
        place = chromium.run(
            "((it) => [it.top, it.bottom, scrollY])(document.querySelector('.banner').getBoundingClientRect())"
        )
        assert place[0] == 0 < place[1] < 100
        assert place[2] > 1000
        assert chromium.too_wide() <= 0
    assert chromium.complaints == []
    assert chromium.pdf(tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


@needs_axe
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everybody_can_read_it(sim: Made, chromium: Browser, width: int, dark: bool) -> None:
    chromium.open(sim.page, width=width, dark=dark)
    chromium.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    assert chromium.faults() == []


@needs_browser
@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
def test_nasty_names_make_pages_that_work(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "private.html"
    folder = nasty_release("mst").save(tmp_path / "release")
    page.write_text(curator_page(folder, nasty_table()), encoding="utf-8")
    assert page.stat().st_size < 3_000_000
    chromium.open(page, width=390)
    assert chromium.complaints == []
    assert chromium.too_wide() <= 0
    assert chromium.run("document.querySelectorAll('script').length") == 0
    titles = set(chromium.run("[...document.querySelectorAll('figcaption strong')].map((it) => it.textContent)"))
    assert {f"{name}." for name in NASTY} <= titles


def test_inputs_of_another_schema_are_refused(sim: Made) -> None:
    from repsynth.errors import DataError

    with pytest.raises(DataError, match="training table"):
        curator_page(sim.folder, sim.train.drop_columns(["x1"]))
    assert Inputs.open(sim.train, sim.train, None, sim.release.schema).train.rows == 500


@pytest.mark.usefixtures("undrawn")
def test_of_persons_the_page_counts_persons(tmp_path: Path) -> None:
    table = make_stays(400, 1)
    release = stays_release()
    facts, page = facts_and_page(release.save(tmp_path / "release"), table)
    risk(table, release, tmp_path / "private-risk.parquet")
    dossier = pq.read_table(tmp_path / "private-risk.parquet")
    losses = dict(zip(table["patient"].to_pylist(), dossier["realised_epsilon"].to_pylist(), strict=True))
    quantiles = np.quantile(list(losses.values()), [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1], method="inverted_cdf")
    assert facts.spread.title == "What the persons lose"
    assert [row[1] for row in facts.spread.rows] == [upper(float(each), 3) for each in quantiles]
    assert facts.compared_with.endswith(f"(400 of {table.num_rows:,} training rows)")
    assert f"Compared with {facts.compared_with}." in html.unescape(page)

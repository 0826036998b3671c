"""The pages say what is so: commands and Python in them run, numbers are those of the code, links lead on."""

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.csv as pacsv
import pytest
from checks import repeatable
from conftest import ALL_TYPES, make_people
from scipy.stats import norm
from written import CHECKOUT, DOCS, blocks, run_all

import repsynth
from repsynth.cli import main
from repsynth.cli.main import make_app
from repsynth.cli.options import COMMANDS
from repsynth.privacy.gaussian import mu_of
from repsynth.schema import parse_schema

GUIDE = DOCS / "guide.md"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_site" not in path.parts)


def tool(name: str) -> ModuleType:
    """What `make docs` works with."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with people.csv and schema.toml, and the working directory."""
    pacsv.write_csv(make_people(600), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_release() -> None:
    """What guides that begin after a run take as given."""
    command = "synthesize people.csv --schema schema.toml --epsilon 1 --model naive-bayes -o synthetic.csv"
    assert main([*command.split(), "--release", "release"]) == 0


def test_every_command_in_the_tutorial_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    tutorial = DOCS / "tutorial.md"
    assert run_all(tutorial, capsys) == 7
    rows = Path("people.csv").read_text(encoding="utf-8").splitlines()
    assert "\n".join(rows[:3]) in tutorial.read_text(encoding="utf-8")
    plan = repsynth.plan("schema.toml", epsilon=1.0)
    (bound,) = re.findall(
        r"^\| outliers.*\| ([\d.]+) \|$", tutorial.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert float(bound) == rounded_up(float(plan.loss.epsilon_at(0.2, plan.delta)), 0.001)
    assert pacsv.read_csv("more.csv").num_rows == 100
    assert "What is my own bound?" in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.notebooks
def test_every_command_in_the_guide_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_all(GUIDE, capsys) >= 7
    assert pacsv.read_csv("more.csv").num_rows == 100
    made = {path.name for path in folder.iterdir()}
    assert {"release", "synthetic.csv", "plan.toml", "dossier.parquet", "draft.toml", "report.html"} <= made


@pytest.mark.notebooks
@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.stem)
def test_every_command_in_a_guide_runs(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.stem in ("checking", "handing-out"):
        make_release()
    wanted = {"schema": 2, "epsilon": 8, "models": 4, "ledger": 3, "checking": 2, "handing-out": 1}
    assert run_all(page, capsys) >= wanted.get(page.stem, 0)


@pytest.mark.notebooks
@pytest.mark.parametrize("page", [page for page in GUIDES if blocks(page, "python")], ids=lambda path: path.stem)
def test_the_python_in_a_guide_runs(page: Path, folder: Path) -> None:
    if page.stem == "ledger":
        assert main(["ledger", "init", "ledger.db", "--epsilon", "2"]) == 0
    names: dict[str, Any] = {}
    with repeatable(1):
        for code in blocks(page, "python"):
            exec(compile(code, page.name, "exec"), names)
    if page.stem == "python":
        assert names["summary"].records == 600
        assert names["account"]["weights"] == "hinge-exp"
        assert not any(finding.exceeded for finding in names["findings"])
    if page.stem == "persons":
        assert names["patients"].stays.tolist() == [2, 1]
        told = re.findall(r"^\| (\d+) \| ([\d.]+) \|$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert {int(k): float(loss) for k, loss in told} == {
            k: rounded_up(loss - 1e-6, 0.01) for k, loss in names["losses"].items()
        }
        assert "one person" in names["account"]["neighbours"]
        assert names["release"].rows < 900  # 2,400 rows of 600 persons
    if page.stem == "ledger":
        assert names["spent"] == 0


def rounded_up(value: float, step: float) -> float:
    return round(math.ceil(value / step) * step, 9)


@pytest.mark.parametrize("page", [DOCS / "guides" / "schema.md", DOCS / "tutorial.md"], ids=lambda path: path.stem)
def test_the_schema_on_a_page_is_one(page: Path) -> None:
    text, *_ = blocks(page, "toml")
    label = re.findall(r'^label = "(\w+)"', text, flags=re.MULTILINE)[0]
    assert parse_schema(text + f'[columns.{label}]\ntype = "boolean"\n').label == label


def test_the_rules_of_the_schema_s_page_are_rules() -> None:
    _, ids, families, rules = blocks(DOCS / "guides" / "schema.md", "toml")
    number = '{type = "integer", min = 0, max = 99}'
    columns = [
        f"columns.{name} = {number}" for name in ("admission", "discharge", "age", "rent", "heating", "total")
    ]
    values = {"marital": ["single"], "sex": ["F", "M"], "pregnant": ["yes", "no"], "district": ["north", "south"]}
    columns += [f'columns.{name} = {{type = "category", values = {each}}}' for name, each in values.items()]
    columns.append('columns.density = {type = "number", min = 0.0, max = 500.0}')
    assert len(parse_schema("\n".join([*columns, rules])).rules) == 5
    assert [column.name for column in parse_schema(f"{columns[0]}\n{ids}").columns] == ["admission", "ssn", "mail"]
    diagnosis = parse_schema(f"{columns[0]}\n{families}").columns[1]
    assert diagnosis.families == (0, 0, 1, 1)  # type: ignore[union-attr]


def test_what_epsilon_means_is_what_the_best_attack_can_do() -> None:
    text = (DOCS / "guides" / "epsilon.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| ([\d.]+) \| (\d+) \|$", text, flags=re.MULTILINE)
    assert len(told) == 5
    for epsilon, right in told:
        assert int(right) == math.ceil(100 * norm.cdf(mu_of(float(epsilon), 1e-9) / 2))


def test_the_promise_is_the_same_on_every_page() -> None:
    """The joint bound for outliers, as the page with its proof states it."""
    one = "P[release(D) ∈ S] ≤ e^ε(w) P[release(D′) ∈ S] + δ"
    other = "P[release(D′) ∈ S] ≤ e^ε(w) P[release(D) ∈ S] + δ"
    over = "for every w and every set S of releases in which w(z) ≤ w"
    for page in (DOCS / "privacy.md", CHECKOUT / "README.md"):
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert f"{one} and {other}" in text
        assert over in text.replace("**", "").replace("For every w", "for every w")


def test_the_readme_is_short_and_its_pictures_are_small() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    pictures = re.findall(r"docs/[\w-]+\.(?:svg|png)", text)
    assert len(pictures) == 4
    assert all((CHECKOUT / picture).stat().st_size < 150_000 for picture in pictures)


def test_the_references_leave_nothing_out() -> None:
    named = [name for names in tool("api").GROUPS.values() for name in names]
    assert sorted([*named, "__version__"]) == sorted(repsynth.__all__)  # a new name needs a heading in GROUPS
    app = make_app()
    text = tool("commands").reference(app)
    for name in COMMANDS:
        assert f"## repsynth {name}\n" in text
        command = app
        for word in name.split():
            command = command[word]
        for argument in command.assemble_argument_collection():
            flags = set(argument.names) - set(argument.negatives) - {"--json"}
            assert all(f"`{flag}" in text for flag in flags if flag.startswith("-")), flags
    assert not re.search(r"\d here", text)  # nothing of the machine that builds it


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="b.html#here">', None),
        ('<a href="https://example.org/">', None),
        ('<a href="c.html">', "no such file"),
        ('<a href="b.html#there">', "no such place in the page"),
        ('<script src="https://example.org/x.js">', "is loaded from another place"),
        ('<link href="//example.org/x.css">', "is loaded from another place"),
    ],
)
def test_the_site_is_checked_for_dead_and_foreign_links(page: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text('<p id="here">')
    found = tool("check").problems(tmp_path)
    assert [line.rsplit(": ", 1)[1] for line in found] == ([problem] if problem else [])


def test_a_style_that_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://example.org/font.css';")
    assert tool("check").problems(tmp_path) == ["a.css: loads from another place"]


@pytest.mark.parametrize(
    "page", [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *PAGES], ids=lambda p: p.name
)
def test_links_lead_somewhere_on_a_code_host_too(page: Path) -> None:
    """Where pages are read as they stand in the checkout."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_file(), target
            assert not anchor or anchor in anchors(file), target


def anchors(file: Path) -> set[str]:
    """Of the headings of a page, as a code host makes them; and of those that are made from the code."""
    text = file.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    if file == DOCS / "reference" / "python.md":
        headings += list(tool("api").GROUPS)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

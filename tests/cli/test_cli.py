"""The command line as a person uses it: what it prints, what it refuses, what it leaves behind."""

import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from conftest import ALL_TYPES, make_people
from rich.cells import cell_len
from rich.console import Console
from written import README, blocks, run_all

import repsynth
from repsynth.attacks.results import AttackResult, Exposure
from repsynth.attacks.statistics import Estimate
from repsynth.cli import main, screens
from repsynth.cli.options import COMMANDS
from repsynth.io.write import arrow_schema, write_table
from repsynth.run.run import run as run_plan
from repsynth.schema import load_schema, parse_schema


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with people.csv and schema.toml, and the working directory."""
    pacsv.write_csv(make_people(600), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of these people."""
    folder = tmp_path_factory.mktemp("kept")
    repsynth.synthesize(make_people(600), parse_schema(ALL_TYPES), epsilon=1.0).save(folder / "release")
    return folder / "release"


@pytest.fixture
def with_release(folder: Path, kept: Path) -> Path:
    """The folder with a release, and tables that do not fit the schema."""
    header = (folder / "people.csv").read_text().splitlines()[0]
    (folder / "empty.csv").write_text("")
    (folder / "fewer.csv").write_text("age\n3\n")
    (folder / "more.csv").write_text(header + ",secret\n")
    (folder / "twice.csv").write_text(header + ',"age"\n')
    shutil.copytree(kept, folder / "kept")
    return folder


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run(command: str) -> int:
    return main(shlex.split(command))


def test_brackets_in_a_path_are_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a[/b]").mkdir(parents=True)
    (tmp_path / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    pacsv.write_csv(make_people(50), tmp_path / "people.csv")
    command = ["synthesize", "people.csv", "--schema", "schema.toml", "--epsilon", "1"]
    assert main([*command, "-o", "a[/b]/x.csv", "--release", "a[/b]/r"]) == 0
    assert main(["sample", "a[/b]/r", "-n", "3", "-o", "a[/b]/y.csv"]) == 0
    printed = capsys.readouterr().out
    assert "Wrote the release to a[/b]/r" in printed
    assert "repsynth inspect 'a[/b]/r'" in printed


def test_every_command_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the folder of the demo, as it says."""
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    monkeypatch.chdir(tmp_path / "demo")
    assert run_all(README, capsys) >= 3
    assert {"strict", "strict.csv"} <= files(tmp_path / "demo")


def test_the_python_in_the_readme_runs(folder: Path) -> None:
    (code,) = blocks(README, "python")
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["synthetic"].num_rows == 1000


def test_a_draft_is_refused_until_it_is_confirmed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema people.csv --label smoker -o draft.toml") == 0
    draft = (folder / "draft.toml").read_text()
    assert "not private" in draft
    command = "synthesize people.csv --schema draft.toml --epsilon 1"
    assert run(command) == 2
    assert "one_row_per_person = true" in capsys.readouterr().err
    draft = draft.replace("# one_row_per_person = true", "one_row_per_person = true")
    (folder / "draft.toml").write_text(draft)
    assert run(command) == 2
    assert "confirmed = true" in capsys.readouterr().err
    (folder / "draft.toml").write_text(draft.replace("confirmed = false", "confirmed = true"))
    assert run(command) == 0


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_private_files_are_the_owners_and_others_obey_the_umask(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert run("schema people.csv --label smoker -o draft.toml") == 0
        assert run("synthesize people.csv --schema schema.toml --epsilon 1 --model naive-bayes") == 0
        assert run("risk people.csv --release release -o dossier.parquet") == 0
        assert run("schema schema.toml --to-sdv metadata.json") == 0
        assert run("sample release -n 3 -o drawn.parquet") == 0
    finally:
        os.umask(before)
    modes = {name: (folder / name).stat().st_mode & 0o777 for name in files(folder)}
    assert modes["draft.toml"] == modes["dossier.parquet"] == 0o600
    assert modes["synthetic.csv"] == modes["drawn.parquet"] == modes["metadata.json"] == 0o666 & ~umask
    assert modes["release"] == 0o777 & ~umask


def test_a_draft_says_why_on_the_screen_and_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema people.csv --label smoker -o draft.toml") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PRIVATE")
    assert re.search(r"^person +id +every value occurs once", printed, flags=re.MULTILINE)
    assert re.search(r"^joined +datetime +days", printed, flags=re.MULTILINE)
    assert "warning: person: not learned" in printed
    assert run("schema people.csv -o again.toml --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["confirmed"], told["publishable"]) == ("again.toml", False, False)
    assert [column["name"] for column in told["columns"]] == pacsv.read_csv("people.csv").column_names
    assert all(column["reason"] for column in told["columns"])
    draft = (folder / "again.toml").read_text().replace("\n#  ", "")
    assert all(f"# {column['reason']}" in draft for column in told["columns"])


def test_a_check_is_private_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ledger init ledger.db --epsilon 1")
    before = contents(folder)
    capsys.readouterr()
    assert run("check people.csv --schema schema.toml") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PRIVATE")
    assert '"nowhere", not declared' in printed
    assert run("check people.csv --schema schema.toml --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["publishable"], told["rows"]) == (False, 600)
    assert {column["name"] for column in told["columns"]} == set(pacsv.read_csv("people.csv").column_names)
    assert contents(folder) == before
    assert run("schema people.csv -o draft.toml") == 0
    capsys.readouterr()
    draft = (folder / "draft.toml").read_text()
    (folder / "draft.toml").write_text(draft.replace("# one_row_per_person", "one_row_per_person"))
    assert run("check people.csv --schema draft.toml") == 0  # a draft may be checked before it is confirmed
    assert "is a draft" in capsys.readouterr().out


def test_synthesize_points_to_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("synthesize --help") == 0
    assert "repsynth check" in " ".join(capsys.readouterr().out.split())


def test_synthesize_says_what_it_did(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("synthesize people.csv --schema schema.toml --epsilon 2 --delta 1e-6 --rows 50") == 0
    printed = capsys.readouterr().out
    assert "Spent ε = 2 at δ = 1e-06" in printed
    assert "50 synthetic rows" in printed
    assert pacsv.read_csv("synthetic.csv").num_rows == 50
    assert pacsv.read_csv("synthetic.csv").column_names == pacsv.read_csv("people.csv").column_names


def test_parquet_in_parquet_out(folder: Path) -> None:
    pq.write_table(make_people(300), "people.parquet")
    assert run("synthesize people.parquet --schema schema.toml --epsilon 1") == 0
    assert pq.read_table("synthetic.parquet").schema.equals(arrow_schema(load_schema("schema.toml")))


@pytest.mark.parametrize(
    "command",
    [
        "plan --schema schema.toml --rho 0.01 --json",
        "synthesize people.csv --schema schema.toml --epsilon 1 --json",
        "schema people.csv -o draft.toml --json",
        "check people.csv --schema schema.toml --json",
    ],
)
def test_json_is_one_object_and_nothing_else(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 0
    captured = capsys.readouterr()
    assert isinstance(json.loads(captured.out), dict)
    assert captured.err == ""


def test_json_of_a_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("synthesize people.csv --schema schema.toml --epsilon 1 --delta 1e-6 --model naive-bayes")
    capsys.readouterr()
    assert run("inspect release --json") == 0
    account = json.loads(capsys.readouterr().out)
    assert account["epsilon"] <= 1
    assert account["publishable"] is True
    names = ["count", "coarse histograms", "scores", "refined histograms", "fine histograms", "sums"]
    assert [m["name"] for m in account["measurements"]] == names
    assert sum(part["fraction"] for part in account["loss_distribution"]) == pytest.approx(1)
    assert run("sample release -n 5 -o five.csv --seed 1 --json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 5


def test_plan_touches_no_data_and_shows_every_measurement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "people.csv").unlink()
    known = "plan --schema schema.toml --epsilon 1 --delta 1e-6 --model naive-bayes"
    assert run(f"{known} --outlier-epsilon 0.5 --full") == 0
    printed = capsys.readouterr().out
    for word in ("coarse histograms", "scores", "sums", "sensitivity", "share of a bin", "attack advantage"):
        assert word in printed
    assert "ε ≤ 0.5" in printed


def test_a_lost_mass_is_said_in_plan_and_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = "--schema schema.toml --epsilon 4 --delta 1e-6 --model naive-bayes --max-lost-mass 0.1"
    assert run(f"plan {settings}") == 0
    assert "a mean lost weight of 0.1 allows" in " ".join(capsys.readouterr().out.split())
    assert run(f"plan {settings} --json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["max_lost_mass"], planned["outlier_weight_at_most"]) == (0.1, 1.0)
    assert run(f"synthesize people.csv {settings} --release lost -o lost.csv") == 0
    capsys.readouterr()
    assert run("inspect lost --full") == 0
    assert "released scores: outlier weight 0." in " ".join(capsys.readouterr().out.split())
    assert run("inspect lost --json") == 0
    told = json.loads(capsys.readouterr().out)["threshold"]
    assert told["lost_mass"] <= told["max_lost_mass"] == 0.1
    assert told["rule"]["outlier_weight"] == pytest.approx(told["outlier_weight"], abs=1e-3)


def test_the_default_model_is_named_everywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = "--schema schema.toml --epsilon 1 --delta 1e-6"
    for command in (f"plan {settings}", f"synthesize people.csv {settings}", "inspect release"):
        assert run(command) == 0
        assert re.search(r"^Model:? +aim", capsys.readouterr().out, flags=re.MULTILINE)
    for command in (f"plan {settings}", "inspect release"):
        assert run(f"{command} --json") == 0
        assert json.loads(capsys.readouterr().out)["model"] == "aim"


def test_plan_warns_where_a_run_takes_minutes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows, warned in ((100_000, False), (1_000_000_000, True)):
        assert run(f"plan --schema schema.toml --epsilon 1 --model mst --rows {rows} --json") == 0
        printed = json.loads(capsys.readouterr().out)
        found = [text for text in printed["warnings"] if "minutes of one core" in text]
        assert bool(found) == (printed["model_seconds_about"] > 120) == warned


def test_plan_warns_in_words_where_noise_drowns_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan --schema schema.toml --epsilon 0.01 --rows 500") == 0
    assert "noise drowns the data" in capsys.readouterr().out


# --- what a user should know ---

CODES = """
one_row_per_person = true
[columns.person]
type = "id"

[columns.code]
type = "category"
values = [{values}]

[columns.change]
type = "category"
values = ["+10 %", "same"]

[columns.smoker]
type = "boolean"
"""


@pytest.fixture
def codes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that every caution is about: an id, 3,000 codes, formulas, no label, and a column that is unread.
    Noise is the same every time: none looks like other cells that could not be read."""
    monkeypatch.setattr("repsynth.run.run.run", partial(run_plan, noise_seed=1))
    (folder / "codes.toml").write_text(CODES.format(values=", ".join(f'"c{k}"' for k in range(3000))))
    cells = {
        "person": list(range(3000)),
        "code": [f"c{k}" for k in range(3000)],
        "change": ["+10 %", "same"] * 1500,
        "smoker": ["unknown"] * 3000,
    }
    pacsv.write_csv(pa.table(cells), folder / "codes.csv")
    return folder


KNOWN = ["'code' (3,000 values)", "without a label", "'person' is not learned; the ids are numbered"]
"""What is known before a run."""


def warned(printed: str) -> list[str]:
    return [line.removeprefix("warning: ") for line in printed.splitlines() if line.startswith("warning: ")]


def test_the_same_warnings_are_everywhere(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthesize = "synthesize codes.csv --schema codes.toml --epsilon 1 --public-rows 3000 --model naive-bayes"
    for command, known in (
        (
            "plan --schema codes.toml --epsilon 1 --rows 3000 --model naive-bayes --full",
            [*KNOWN, "a CSV file gets apostrophes"],
        ),
        (synthesize, [*KNOWN, "'smoker' could not be read", "synthetic.csv: an apostrophe stands before"]),
        ("inspect release --full", [*KNOWN, "'smoker' could not be read", "a CSV file gets apostrophes"]),
    ):
        assert run(command) == 0
        said = warned(capsys.readouterr().out)
        assert len(said) == len(known), said
        assert all(word in text for word, text in zip(known, said, strict=True)), said
        again = f"{command} --release other -o other.csv" if command == synthesize else command
        assert run(f"{again} --json") == 0
        told = json.loads(capsys.readouterr().out)["warnings"]
        assert len(told) == len(known)
        assert all(
            word.replace("synthetic.csv", "other.csv") in text for word, text in zip(known, told, strict=True)
        )


def test_apostrophes_are_counted_and_only_csv_has_them(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("synthesize codes.csv --schema codes.toml --epsilon 1 -o synthetic.parquet") == 0
    assert not any("apostrophe" in text for text in warned(capsys.readouterr().out))
    assert run("sample release -n 500 -o some.csv") == 0
    (said,) = warned(capsys.readouterr().out)
    written = [line.split(",")[2] for line in (codes / "some.csv").read_text().splitlines()[1:]]
    changed = sum(cell.startswith("\"'") for cell in written)
    assert changed > 100
    assert f"before {changed} cells of column 'change'" in said
    header = pa.table({"@home": ["yes", "=no"], "age": [1, 2]})
    assert write_table([lambda: header] * 2, header.schema, codes / "header.csv").apostrophes == {"@home": 3}
    assert run("sample release -n 5 -o five.parquet --json") == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_the_line_on_outliers_is_what_the_histogram_says(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records that are all equal, not nearly a third are outliers."""
    monkeypatch.setattr("repsynth.run.run.run", partial(run_plan, noise_seed=1))
    pacsv.write_csv(pa.table({"age": [40] * 3000, "smoker": [True] * 3000}), folder / "equal.csv")
    columns = (
        "one_row_per_person = true\n"
        '[columns.age]\ntype = "integer"\nmin = 18\nmax = 99\n[columns.smoker]\ntype = "boolean"\n'
    )
    (folder / "equal.toml").write_text(f'label = "smoker"\n{columns}')
    assert run("synthesize equal.csv --schema equal.toml --epsilon 2 --delta 1e-6 --json") == 0
    told = json.loads(capsys.readouterr().out)["threshold"]
    assert told["fraction_above"] <= 4 * told["fraction_standard_error"]
    assert run("inspect release --full") == 0
    printed = capsys.readouterr().out
    rows = re.findall(r"^ *[0-9.]+ +([0-9.]+)% ± [0-9.]+%", printed, flags=re.MULTILINE)
    assert float(rows[-1]) < 10
    assert all(0 <= float(fraction) <= 100 for fraction in rows)


def test_the_dossier_prints_nothing_private_unless_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("synthesize people.csv --schema schema.toml --epsilon 1 --model naive-bayes")
    capsys.readouterr()
    assert run("risk people.csv --release release -o d.parquet --json") == 0
    assert json.loads(capsys.readouterr().out) == {"dossier": "d.parquet", "publishable": False}
    assert run("risk people.csv --release release -o dossier.parquet") == 0
    printed = capsys.readouterr().out
    assert "PRIVATE" in printed
    assert "600" not in printed
    assert run("risk people.csv --release release -o shown.parquet --show") == 0
    assert "600" in capsys.readouterr().out


GOOD = "synthesize people.csv --schema schema.toml --epsilon 1"


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("schema absent.csv -o s.toml", "DataError", "no such file"),
        ("schema people.csv --label nobody -o s.toml", "DataError", "not one of the columns"),
        ("schema people.csv -o schema.toml", "ConfigError", "already exists"),
        ("check absent.csv --schema schema.toml", "DataError", "no such file"),
        ("check more.csv --schema schema.toml", "DataError", "not in the schema (position 8)"),
        ("plan --schema schema.toml --epsilon 1 --model magic", "ConfigError", "unknown model"),
        ("plan --schema schema.toml --plan absent.toml", "ConfigError", "cannot be read"),
        ("synthesize absent.csv --schema schema.toml --epsilon 1", "DataError", "no such file"),
        ("synthesize people.csv --schema absent.toml --epsilon 1", "SchemaError", "check the path"),
        ("synthesize empty.csv --schema schema.toml --epsilon 1", "DataError", "empty file"),
        ("synthesize fewer.csv --schema schema.toml --epsilon 1", "DataError", "no column"),
        ("synthesize more.csv --schema schema.toml --epsilon 1", "DataError", "not in the schema (position 8)"),
        ("synthesize twice.csv --schema schema.toml --epsilon 1", "DataError", "more than once"),
        ("synthesize people.csv --schema schema.toml", "ConfigError", "exactly one of epsilon, mu or rho"),
        (f"{GOOD} --epsilon 0", "ConfigError", "above 0"),
        (f"{GOOD} --epsilon -1", "ConfigError", "above 0"),
        (f"{GOOD} --epsilon nan", "ConfigError", "must be a number"),
        (f"{GOOD} --delta 1", "ConfigError", "between 0 and 1"),
        (f"{GOOD} --delta 0", "ConfigError", "between 0 and 1"),
        (f"{GOOD} --outlier-epsilon 2", "ConfigError", "above the whole budget"),
        (f"{GOOD} --outlier-epsilon 0.001", "ConfigError", "out of reach"),
        (f"{GOOD} --outlier-epsilon 0.5 --max-lost-mass 0.1", "ConfigError", "give one"),
        (f"{GOOD} --weights uniform --max-lost-mass 0.1", "ConfigError", "no strength"),
        (f"{GOOD} --rows -3", "ConfigError", "cannot be negative"),
        (f"{GOOD} -o table.xlsx", "ConfigError", "end it in .csv or .parquet"),
        (f"{GOOD} -o nowhere/table.csv", "ConfigError", "no such folder"),
        (f"{GOOD} --release schema.toml", "ConfigError", "already exists"),
        (f"{GOOD} -o people.csv", "ConfigError", "already exists"),
        (f"{GOOD} --public-rows 0", "ConfigError", "between 1 and 1,000,000,000,000"),
        (f"{GOOD} --ledger absent.db", "LedgerError", "absent.db"),
        (f"{GOOD} --engine steam", "ConfigError", "unknown engine"),
        ("sample absent -o x.csv", "ReleaseError", "cannot be read"),
        ("sample kept -n -1 -o x.csv", "ConfigError", "number of rows"),
        ("inspect people.csv", "ReleaseError", "cannot be read"),
        ("risk absent.csv --release kept -o d.parquet", "DataError", "no such file"),
        ("risk more.csv --release kept -o d.parquet", "DataError", "not in the schema"),
        ("ledger init ledger.db", "ConfigError", "exactly one of epsilon, mu or rho"),
        ("ledger init people.csv --epsilon 1", "LedgerError", "people.csv"),
        ("ledger show absent.db", "LedgerError", "absent.db"),
        ("audit absent.csv --schema schema.toml --epsilon 1", "DataError", "no such file"),
        ("audit more.csv --schema schema.toml --epsilon 1", "DataError", "not in the schema"),
        ("audit --schema schema.toml --epsilon 1 --runs 1", "ConfigError", "100 runs"),
        ("demo -o people.csv", "ConfigError", "people.csv"),
        ("demo -o .", "ConfigError", "already exists"),
    ],
)
def test_an_error_is_one_line_or_one_json_object_and_leaves_nothing(
    command: str, kind: str, message: str, with_release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(with_release)
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    error = refusal(f"{command} --json", capsys)
    assert error["kind"] == kind
    assert message in error["message"]
    assert "secret" not in captured.err + error["message"]
    assert contents(with_release) == before


@pytest.mark.parametrize("verb", ["check", "plan", "synthesize", "audit"])
def test_a_wrong_schema_prints_all_its_mistakes(
    verb: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.toml").write_text(
        'one_row_per_person = true\n[columns.a]\ntype = "int"\n[columns.b]\ntype = "number"\nmin = 3\nmax = 1\n'
    )
    before = files(folder)
    command = WHOLE[verb].replace("schema.toml", "bad.toml")
    assert run(command) == 2
    assert capsys.readouterr().err.count("error: bad.toml, line ") == 2
    error = refusal(f"{command} --json", capsys)
    assert error["kind"] == "SchemaError"
    assert len(error["problems"]) == 2
    assert all(problem.startswith("bad.toml, line ") for problem in error["problems"])
    assert files(folder) == before


def test_a_full_disk_leaves_no_half_written_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("synthesize people.csv --schema schema.toml --epsilon 1")
    before = files(folder)

    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", full)
    assert run("sample release -n 5 -o new.csv") == 2
    assert "No space left" in capsys.readouterr().err
    assert files(folder) == before


WHOLE = {
    "schema": "schema people.csv -o s.toml",
    "check": "check people.csv --schema schema.toml",
    "plan": "plan --schema schema.toml --epsilon 1",
    "synthesize": "synthesize people.csv --schema schema.toml --epsilon 1",
    "sample": "sample release -o x.csv",
    "inspect": "inspect release",
    "report": "report release -o report.html",
    "explore": "explore --schema schema.toml -o explore.html",
    "risk": "risk people.csv --release release -o d.parquet",
    "ledger init": "ledger init ledger.db --epsilon 1",
    "ledger show": "ledger show ledger.db",
    "audit": "audit people.csv --schema schema.toml --epsilon 1",
    "evaluate": "evaluate --release release",
    "attack": "attack --train people.csv --schema schema.toml --epsilon 1 -o attack",
    "demo": "demo -o demo",
    "completion": "completion bash",
}
"""A whole command line of every command."""


def refusal(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The error of a command with --json, after checking that it is one object, on stdout, with exit code 2."""
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(captured.out)
    assert report.keys() == {"error"}
    error: dict[str, Any] = report["error"]
    assert error.keys() == {"kind", "message", "problems"}
    assert error["problems"]
    assert error["message"] == "\n".join(error["problems"])
    return error


def test_every_command_is_known_here() -> None:
    assert list(COMMANDS) == list(WHOLE)


@pytest.mark.parametrize("verb", WHOLE)
@pytest.mark.parametrize(
    "form", ["{} --no-such-flag --json", "{} --json --no-such-flag", "{} --json one too many"]
)
def test_a_wrong_usage_is_one_json_object(
    verb: str, form: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(folder)
    error = refusal(form.format(WHOLE[verb]), capsys)
    assert error["kind"] == "UsageError"
    assert re.search("Unknown option: --no-such-flag|Unused Tokens", error["message"])
    assert f"see repsynth {verb} --help" in error["message"]
    assert files(folder) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--json", "--json"),
        ("forge --json", "forge"),
        ("ledger --json", "--json"),
        ("schema --json", "DATA"),
        ("check people.csv --json", "--schema"),
        ("plan --epsilon 1 --json", "--schema"),
        ("plan --schema schema.toml --epsilon much --json", "--epsilon"),
        ("synthesize --schema schema.toml --epsilon 1 --json", "DATA"),
        ("sample release --json", "--output"),
        ("inspect --json", "RELEASE"),
        ("risk people.csv -o d.parquet --json", "--release"),
        ("ledger show --json", "LEDGER"),
        ("audit --schema schema.toml --runs many --json", "--runs"),
        ("completion csh --json", "csh"),
    ],
)
def test_what_is_missing_or_misspelt_is_named_in_json(
    command: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(command, capsys)
    assert error["kind"] == "UsageError"
    assert message in error["message"]


def test_words_behind_an_audit_without_a_table_are_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal("audit --schema schema.toml --epsilon 1 --json one two", capsys)
    assert error["kind"] == "DataError"
    assert error["message"].startswith("one: cannot tell the format from the name")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- plans as files ---


def settings_in(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The settings with which a command made the release "made"."""
    assert run(f"{command} --release made -o made.csv --json") == 0, capsys.readouterr().out
    account = json.loads(capsys.readouterr().out)
    described = json.loads(Path("made/release.json").read_text())
    settings: dict[str, Any] = described["plan"]["settings"]
    assert account["model"] == settings["model"]["name"]
    assert account["scorer"] == settings["scorer"]["name"]
    return settings


SAVED = "plan --schema schema.toml --epsilon 0.7 --delta 1e-6 --model mst --weights hinge-exp --gamma 2"


def test_a_saved_plan_is_carried_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{SAVED} --outlier-fraction 0.2 --save p.toml --json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["saved"] == "p.toml"
    settings = settings_in("synthesize people.csv --schema schema.toml --plan p.toml", capsys)
    assert settings["model"] == {"name": "mst"}
    assert settings["weights"] == {"name": "hinge-exp", "gamma": 2.0}
    assert (settings["epsilon"], settings["delta"], settings["outlier_fraction"]) == (0.7, 1e-6, 0.2)
    release = repsynth.Release.load("made")
    assert release.plan.budget == repsynth.plan("schema.toml", settings="p.toml").budget
    assert run(f"{SAVED} --save p.toml") == 2
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ("--epsilon 2", {"epsilon": 2.0}),
        ("--rho 0.02", {"epsilon": None, "rho": 0.02}),
        ("--delta 1e-7 --outlier-fraction 0.25", {"delta": 1e-7, "outlier_fraction": 0.25}),
        ("--gamma 3", {"weights": {"name": "hinge-exp", "gamma": 3.0}}),
        ("--weights targeted", {"weights": {"name": "targeted", "outlier_weight": 0.2}}),
        ("--weights targeted --outlier-weight 0.1", {"weights": {"name": "targeted", "outlier_weight": 0.1}}),
        (
            "--weights random",
            {"weights": {"name": "targeted", "outlier_weight": 0.2}, "scorer": {"name": "random"}},
        ),
        ("--model naive-bayes --public-rows 600", {"model": {"name": "naive-bayes"}, "public_rows": 600}),
    ],
)
def test_flags_beside_a_plan_count_more_and_change_nothing_else(
    flags: str, changed: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{SAVED} --save p.toml --json") == 0
    capsys.readouterr()
    settings = settings_in(f"synthesize people.csv --schema schema.toml --plan p.toml {flags}", capsys)
    before = repsynth.plan("schema.toml", settings="p.toml").settings.dump()
    wanted = {name: value for name, value in (before | changed).items() if value is not None}
    assert settings == wanted


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--outlier-weight 0.1", "belongs to the weight rule targeted"),
        ("--epochs 3", "belongs to the model autoregressive"),
    ],
)
def test_a_knob_that_the_plan_s_parts_do_not_have_is_refused(
    flags: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{SAVED} --save p.toml --json") == 0
    capsys.readouterr()
    assert message in refusal(f"plan --schema schema.toml --plan p.toml {flags} --json", capsys)["message"]


def test_keywords_beside_a_plan_count_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{SAVED} --save p.toml --json") == 0
    hinge = repsynth.HingeExp(gamma=4.0)
    settings = repsynth.plan("schema.toml", settings="p.toml", mu=0.3, weights=hinge).settings
    assert (settings.epsilon, settings.mu, settings.delta) == (None, 0.3, 1e-6)
    assert settings.weights == hinge
    assert settings.model == repsynth.Mst()


def test_a_package_that_drawing_needs_is_missed_before_anything_is_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "faker", None)
    (folder / "fake.toml").write_text(ALL_TYPES.replace('type = "id"', 'type = "id"\nfake = "name"'))
    assert run("ledger init ledger.db --epsilon 2") == 0
    assert run("synthesize people.csv --schema fake.toml --epsilon 1 --ledger ledger.db") == 2
    assert "pip install 'repsynth[fake]'" in capsys.readouterr().err
    with pytest.raises(repsynth.ConfigError, match="pip install"):
        repsynth.synthesize("people.csv", "fake.toml", epsilon=1.0, ledger="ledger.db")
    assert repsynth.Ledger("ledger.db").balance("data").spendings == ()


def test_keywords_are_real() -> None:
    for name in repsynth.__all__:
        if inspect.isfunction(function := getattr(repsynth, name)):
            kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name
            assert not hasattr(function, "__signature__")


# --- starting ---


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_shell_gets_commands_and_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    captured = capsys.readouterr()
    assert all(word in captured.out for word in ("repsynth", "synthesize", "outlier-epsilon", "gamma"))
    assert captured.err == ""


STARTED = """
import sys
from repsynth.cli import main
assert main(sys.argv[1:]) == 0
print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
HEAVY = {"pyarrow", "scipy", "sklearn", "pandas", "polars", "mpmath", "matplotlib"}


@pytest.mark.parametrize(
    ("asked", "absent"),
    [
        ("--version", {"cyclopts", "rich", "numpy"}),
        ("--help", {"numpy"}),
        ("check --help", {"numpy"}),
        ("synthesize --help", set()),
        ("ledger init --help", set()),
    ],
)
def test_help_and_version_import_nothing_heavy(asked: str, absent: set[str]) -> None:
    command = [sys.executable, "-c", STARTED, *asked.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "repsynth" in done.stdout
    imported = set(done.stderr.split())
    assert "repsynth" in imported
    assert not imported & (HEAVY | absent)


@pytest.mark.parametrize("verb", ["", *WHOLE])
def test_help_teaches_at_the_width_of_the_terminal(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*verb.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"$ repsynth {verb}".strip() in "\n".join(lines)
    assert len(lines) > 8
    assert max(map(len, lines)) <= 60


def test_demo_leaves_its_files_and_shows_rows_columns_and_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    made = {"people.csv", "schema.toml", "release", "synthetic.csv", "summary.txt", "release-report.html"}
    assert main(["demo", "-o", "demo"]) == 0
    assert files(tmp_path / "demo") == made
    printed = capsys.readouterr().out
    fits(printed, 30)
    assert len(re.findall(r"^real ", printed, flags=re.MULTILINE)) == 3
    assert len(re.findall(r"^synthetic ", printed, flags=re.MULTILINE)) == 3
    for words in ("islands", "from 60", "Everyone's privacy loss is at most ε = 1", "Outliers: over the releases"):
        assert words in printed
    assert "Privacy loss by weight" in (tmp_path / "demo" / "summary.txt").read_text(encoding="utf-8")
    monkeypatch.setattr("repsynth.cli.commands.find_spec", lambda name: None)
    assert main(["demo", "-o", "bare"]) == 0
    assert files(tmp_path / "bare") == made - {"release-report.html"}


# --- first screens ---


def fits(printed: str, lines: int = 24) -> None:
    """See that a text fits on a screen of 80 columns."""
    assert len(printed.splitlines()) <= lines, printed
    assert max(map(cell_len, printed.splitlines())) <= 80, printed
    assert "coarse histograms" not in printed  # no internal names
    assert "σ" not in printed


MANY = """
one_row_per_person = true
label = "smoker"
[columns.smoker]
type = "boolean"
""" + "\n".join(
    f'[columns."a column with a long name that says what it holds {k}"]\ntype = "integer"\nmin = {k}\nmax = 9{k}'
    for k in range(40)
)  # fmt: skip


@pytest.fixture
def wide(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of many columns with long names, where much is wrong, and its release."""
    monkeypatch.setenv("COLUMNS", "80")
    (folder / "wide.toml").write_text(MANY)
    names = [f"a column with a long name that says what it holds {k}" for k in range(40)]
    cells = [str(k) for k in range(300)] + ["none at all", "", "1.5"] * 100
    pacsv.write_csv(
        pa.table({"smoker": ["yes", "no", "perhaps"] * 200, **dict.fromkeys(names, cells)}), folder / "wide.csv"
    )
    assert run("synthesize wide.csv --schema wide.toml --epsilon 1 --model naive-bayes -o w.csv --release w") == 0
    return folder


def test_no_first_screen_exceeds_24_lines_of_80_columns(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        "plan --schema schema.toml --epsilon 1",
        "plan --schema schema.toml --epsilon 0.01 --rows 50 --max-lost-mass 0.1 --save plan.toml",
        "plan --schema wide.toml --epsilon 0.01 --rows 50",
        "inspect w",
        "check people.csv --schema schema.toml",
        "check wide.csv --schema wide.toml",
        "evaluate --release w",
        "evaluate --train people.csv --synthetic people.csv --schema schema.toml",
        "evaluate --train wide.csv --release w --skip boosting --skip outliers --skip propensity",
    ):
        capsys.readouterr()
        assert run(command) == 0, capsys.readouterr().err
        printed = capsys.readouterr().out
        fits(printed)
        assert "\nNext\n" in printed


def test_evaluate_says_what_the_table_can_be_used_for(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pacsv.write_csv(make_people(600, 5), wide / "others.csv")
    command = "evaluate --train people.csv --synthetic people.csv --holdout others.csv --schema schema.toml"
    assert run(command) == 0
    printed = capsys.readouterr().out
    fits(printed)
    assert "usable for shares, pairs of columns" in " ".join(printed.split())
    for purpose in ("shares", "pairs of columns", "prediction", "regression coefficients", "subgroups"):
        assert re.search(rf"^{purpose} +(usable|not usable|not known)", printed, flags=re.MULTILINE)
    assert run(f"{command} --full") == 0
    printed = capsys.readouterr().out
    assert printed.index("Verdict by purpose") > printed.index("prediction by boosting")
    assert run(f"{command} --json") == 0
    assert [each["usable"] for each in json.loads(capsys.readouterr().out)["verdicts"]][:2] == [True, True]
    bad = pa.table({name: column.take([0] * 600) for name, column in zip(
        make_people(600).column_names, make_people(600).columns, strict=True)})  # fmt: skip
    pacsv.write_csv(bad, wide / "bad.csv")
    assert run(command.replace("--synthetic people.csv", "--synthetic bad.csv")) == 0
    assert "not usable for shares, pairs of columns" in " ".join(capsys.readouterr().out.split())


def test_a_draft_asks_for_the_unit_of_privacy_first(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("schema people.csv -o draft.toml") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Answer first: can one person have several rows in this table?"
    assert max(map(cell_len, lines)) <= 80


def exposure(
    low: float, high: float, runs: int = 8, *, bare: float | None = None, exceeded: bool = False
) -> Exposure:
    """Attacks on a plan of which one has this AUC; without noise it may have another."""
    middle = Estimate((low + high) / 2, low, high)
    nothing = Estimate(0.0, 0.0, 0.0)

    def line(method: str, attack: str, area: Estimate) -> AttackResult:
        return AttackResult(
            method=method, attack=attack, decile=None, targets=20, trials=100, area=area, advantage=nothing,
            rate_at_1=None, proven_epsilon=0.0, claimed_epsilon=1.0, exceeded=False, verdict="",
        )  # fmt: skip

    lines = [line("reps", "distance", middle), line("reps", "best possible", Estimate(0.54, 0.54, 0.54))]
    if bare is not None:
        lines.append(line("bare", "distance", Estimate(bare, bare - 0.05, bare + 0.05)))
    return Exposure(
        note="", publishable=False, model="aim", epsilon=1.0, delta=1e-9, rows=500, targets=20, runs=runs,
        confidence=0.95, lines=lines, guesses=[], notes=("a note",) * 30, exceeded=exceeded,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (exposure(0.25, 0.75), "Too few runs: only an AUC above 0.75 would have been noticed; use --runs 64."),
        (exposure(0.46, 0.54), "No attack did better than guessing. An AUC above 0.54 would have been noticed."),
        (exposure(0.55, 0.6), "An attack does better than guessing: distance."),
        (exposure(0.46, 0.54, bare=0.5), "These attacks find nobody even without noise, so they prove nothing."),
        (exposure(0.46, 0.54, bare=0.9), "No attack did better than guessing."),
        (exposure(0.46, 0.54, exceeded=True), "An attack proves more than is claimed. Do not hand out"),
    ],
)
def test_an_attack_says_first_whether_it_could_have_noticed_anything(found: Exposure, answer: str) -> None:
    printed = io.StringIO()
    screens.exposure(Console(file=printed, width=80), found, Path("attack"))
    fits(printed.getvalue())
    assert answer in " ".join(printed.getvalue().split("Best attack here")[0].split())
    assert " ".join(repr(found).split()).startswith(answer)
    assert found._repr_html_().count("<tr>") == 3

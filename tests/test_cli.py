"""The command line as a person uses it: what it prints, what it refuses, what it leaves behind."""

import json
import re
import shlex
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from conftest import ALL_TYPES, make_people

from repsynth.cli import main

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with people.csv and schema.toml, and the working directory."""
    pacsv.write_csv(make_people(600), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


def test_every_command_in_the_readme_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ repsynth ")]
    assert len(commands) >= 7
    for command in commands:
        assert run(command.removeprefix("repsynth ")) == 0, (command, capsys.readouterr().err)
    assert {"release", "synthetic.csv", "strict.csv", "more.csv", "dossier.parquet", "draft.toml"} <= files(folder)
    assert pacsv.read_csv("more.csv").num_rows == 100


def test_the_python_in_the_readme_runs(folder: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["synthetic"].num_rows == 1000  # type: ignore[attr-defined]


def test_the_schema_in_the_readme_is_one() -> None:
    from repsynth.schema import parse_schema

    (text,) = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    parse_schema(text + '[columns.smoker]\ntype = "boolean"\n')


def test_a_draft_is_refused_until_it_is_confirmed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema people.csv --label smoker -o draft.toml") == 0
    draft = (folder / "draft.toml").read_text()
    assert "not private" in draft
    command = "synthesize people.csv --schema draft.toml --epsilon 1"
    assert run(command) == 2
    assert "confirmed = true" in capsys.readouterr().err
    (folder / "draft.toml").write_text(draft.replace("confirmed = false", "confirmed = true"))
    assert run(command) == 0


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
    assert pq.read_table("synthetic.parquet").schema.equals(pq.read_table("people.parquet").schema)


@pytest.mark.parametrize(
    "command",
    [
        "plan --schema schema.toml --rho 0.01 --json",
        "synthesize people.csv --schema schema.toml --epsilon 1 --json",
        "schema people.csv -o draft.toml --json",
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
    run("synthesize people.csv --schema schema.toml --epsilon 1 --delta 1e-6")
    capsys.readouterr()
    assert run("inspect release --json") == 0
    account = json.loads(capsys.readouterr().out)
    assert account["epsilon"] <= 1
    assert account["private"] is True
    assert [m["name"] for m in account["measurements"]] == ["size", "score", "threshold", "synthesis"]
    assert sum(part["share"] for part in account["loss_distribution"]) == pytest.approx(1)
    assert run("sample release -n 5 -o five.csv --seed 1 --json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 5
    assert run("risk people.csv --release release -o d.parquet --json") == 0
    assert json.loads(capsys.readouterr().out) == {"dossier": "d.parquet", "private": True}
    assert run("risk people.csv --release release -o e.parquet --show --json") == 0
    assert json.loads(capsys.readouterr().out)["summary"]["records"] == 600


def test_plan_touches_no_data_and_shows_every_measurement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "people.csv").unlink()
    assert run("plan --schema schema.toml --epsilon 1 --delta 1e-6 --outlier-epsilon 0.5") == 0
    printed = capsys.readouterr().out
    for word in ("size", "score", "threshold", "synthesis", "sensitivity", "noise / records", "attack advantage"):
        assert word in printed
    assert "ε ≤ 0.5" in printed


def test_plan_warns_in_words_where_noise_drowns_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan --schema schema.toml --epsilon 0.01 --rows 500") == 0
    assert "noise drowns the data" in capsys.readouterr().out


def test_the_dossier_prints_nothing_private_unless_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("synthesize people.csv --schema schema.toml --epsilon 1")
    capsys.readouterr()
    assert run("risk people.csv --release release -o dossier.parquet") == 0
    printed = capsys.readouterr().out
    assert "PRIVATE" in printed
    assert "600" not in printed
    assert run("risk people.csv --release release -o shown.parquet --show") == 0
    assert "600" in capsys.readouterr().out


GOOD = "synthesize people.csv --schema schema.toml --epsilon 1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("synthesize absent.csv --schema schema.toml --epsilon 1", "no such file"),
        ("synthesize people.csv --schema absent.toml --epsilon 1", "check the path"),
        ("synthesize empty.csv --schema schema.toml --epsilon 1", "empty file"),
        ("synthesize fewer.csv --schema schema.toml --epsilon 1", "no column"),
        ("synthesize more.csv --schema schema.toml --epsilon 1", "not in the schema (position 8)"),
        ("synthesize twice.csv --schema schema.toml --epsilon 1", "more than once"),
        ("synthesize people.csv --schema schema.toml", "exactly one of epsilon, mu or rho"),
        ("synthesize people.csv --schema schema.toml --epsilon 0", "above 0"),
        ("synthesize people.csv --schema schema.toml --epsilon -1", "above 0"),
        ("synthesize people.csv --schema schema.toml --epsilon nan", "above 0"),
        (f"{GOOD} --delta 1", "between 0 and 1"),
        (f"{GOOD} --delta 0", "between 0 and 1"),
        (f"{GOOD} --outlier-epsilon 2", "above the whole budget"),
        (f"{GOOD} --outlier-epsilon 0.001", "out of reach"),
        (f"{GOOD} --rows -3", "cannot be negative"),
        (f"{GOOD} -o table.xlsx", "end it in .csv or .parquet"),
        (f"{GOOD} -o nowhere/table.csv", "no such folder"),
        (f"{GOOD} --release schema.toml", "already exists"),
        (f"{GOOD} --model magic", "unknown model"),
        (f"{GOOD} --public-rows 0", "whole number from 1"),
        (f"{GOOD} -o people.csv", "already exists"),
        ("sample absent -n 5 -o out.csv", "cannot be read"),
        ("inspect people.csv", "cannot be read"),
        ("schema absent.csv -o s.toml", "no such file"),
        ("schema people.csv -o schema.toml", "already exists"),
        ("schema people.csv --label nobody -o s.toml", "not one of the columns"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    command: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = (folder / "people.csv").read_text().splitlines()[0]
    (folder / "empty.csv").write_text("")
    (folder / "fewer.csv").write_text("age\n3\n")
    (folder / "more.csv").write_text(header + ",secret\n")
    (folder / "twice.csv").write_text(header + ',"age"\n')
    before = files(folder)
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert "secret" not in captured.err
    assert files(folder) == before


def test_a_wrong_schema_prints_all_its_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.toml").write_text('[columns.a]\ntype = "int"\n[columns.b]\ntype = "number"\nmin = 3\nmax = 1\n')
    assert run("plan --schema bad.toml --epsilon 1") == 2
    assert capsys.readouterr().err.count("error: bad.toml, line ") == 2


def test_a_full_disk_leaves_no_half_written_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("synthesize people.csv --schema schema.toml --epsilon 1")
    before = files(folder)

    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("repsynth.output.pacsv.CSVWriter", full)
    assert run("sample release -n 5 -o new.csv") == 2
    assert "No space left" in capsys.readouterr().err
    assert files(folder) == before


@pytest.mark.parametrize("verb", ["", "schema", "plan", "synthesize", "sample", "inspect", "risk", "demo"])
def test_help_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"] if verb else ["--help"])
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out) > 200


def test_demo_leaves_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    assert files(tmp_path / "demo") == {"people.csv", "schema.toml", "release", "synthetic.csv", "summary.txt"}
    assert "Who loses how much" in capsys.readouterr().out

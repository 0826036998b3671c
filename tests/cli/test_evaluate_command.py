"""`repsynth evaluate` as a person uses it: what it prints, what it refuses, what it leaves behind."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pacsv
import pytest
from conftest import ALL_TYPES, make_people

from repsynth.cli import main
from repsynth.evaluation.export import STAMP


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(("people", "synthetic", "others")):
        pacsv.write_csv(make_people(150, seed), folder / f"{name}.csv")
    pacsv.write_csv(make_people(150, 9).drop_columns(["age"]), folder / "narrow.csv")
    (folder / "schema.toml").write_text(ALL_TYPES)
    options = "--schema schema.toml --epsilon 2 --model naive-bayes --release release -o drawn.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(shlex.split(f"synthesize people.csv {options}")) == 0
    return folder


@pytest.fixture
def folder(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in tables.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str) -> int:
    return main(shlex.split(f"evaluate {command}"))


TABLES = "--train people.csv --synthetic synthetic.csv --holdout others.csv --schema schema.toml"


@pytest.mark.slow
def test_it_prints_a_line_for_each_measure_and_writes_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TABLES} --release release -o out --full") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PRIVATE: ")
    for words in ("one-way distance", "as near as", "prediction by boosting", "outlier decile 10", "to out"):
        assert words in printed
    assert "Label: smoker" in printed
    before = {path.name for path in folder.iterdir()}
    assert run(f"{TABLES} -o out") == 2
    assert "out: already exists" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.slow
def test_every_command_on_its_page_runs(folder: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ repsynth evaluate (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 3
    assert all(run(command) == 0 for command in commands)
    assert (folder / "private-look").is_dir()


@pytest.mark.slow
def test_json_is_one_private_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in folder.iterdir()}
    assert run("--train people.csv --release release --json") == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert captured.err == ""
    assert data["publishable"] is False
    assert data["stamp"] == STAMP
    assert data["rows"].keys() == {"training", "synthetic"}
    assert {"value", "best", "floor", "breakdown", "line", "words"} <= data["measures"][0].keys()
    assert "prediction by boosting" in data["left_out"]
    assert {path.name for path in folder.iterdir()} == before  # nothing is written that was not asked for


def test_a_release_alone_needs_no_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--release release --full") == 0
    printed = capsys.readouterr().out
    assert "PRIVATE" not in printed
    assert "What an analyst may rely on" in printed
    assert "at least" in printed
    assert run("--release release --json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["publishable"] is True
    assert [shares["column"] for shares in data["columns"]] == [
        "age",
        "income",
        "region",
        "insured",
        "joined",
        "smoker",
    ]
    assert main(["inspect", "release", "--full"]) == 0
    assert "What an analyst may rely on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "give tables with --train and --synthetic"),
        ("--synthetic synthetic.csv", "--synthetic says nothing without the training table"),
        ("--release release --label smoker", "--label says nothing without the training table"),
        ("--release release", "-o is for the PRIVATE measures; add --train"),
        ("--train people.csv", "give a synthetic table, or a release"),
        ("--train people.csv --synthetic synthetic.csv", "give the schema, or a release"),
        ("--train people.csv --synthetic narrow.csv --schema schema.toml", "the synthetic table: no column 'age'"),
        ("--train absent.csv --synthetic synthetic.csv --schema schema.toml", "the training table: absent.csv"),
        (f"{TABLES} --label nobody", "the label 'nobody' is no column"),
        (f"{TABLES} -o nowhere/out", "nowhere: no such folder"),
        (f"{TABLES} --release absent", "absent"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    command: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert run(f"{command} {'' if '-o' in command else '-o out'}") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert {path.name for path in folder.iterdir()} == before


def test_without_its_packages_it_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert run(TABLES) == 2
    assert "pip install 'repsynth[evaluate]'" in capsys.readouterr().err


def test_a_release_alone_needs_no_packages_and_attacks_name_theirs(folder: Path) -> None:
    """In a process of its own: what another test has imported is there for good."""

    def without(command: str) -> subprocess.CompletedProcess[str]:
        absent = "import sys; sys.modules.update(dict.fromkeys(['sklearn']))"
        script = f"{absent}; from repsynth.cli.main import main; sys.exit(main(sys.argv[1:]))"
        return subprocess.run(
            [sys.executable, "-c", script, *shlex.split(command)], capture_output=True, text=True, cwd=folder
        )

    found = without("evaluate --release release")
    assert (found.returncode, found.stderr) == (0, "")
    found = without("attack --train people.csv --schema schema.toml --epsilon 1 -o attack")
    assert found.returncode == 2
    assert found.stderr == "error: this needs scikit-learn; pip install 'repsynth[evaluate]'\n"

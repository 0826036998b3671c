"""Hostile input: schemas, tables, releases and ledgers from strangers. Clear errors only, never a traceback,
nothing outside the asked folder, no formulas for spreadsheets, no more memory than is stated."""

import hashlib
import json
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from checks import check_contribution, check_replay, record_run, records_of
from conftest import options_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import schemas, tables

import repsynth
from repsynth import Release, datasets, draft_schema, synthesize
from repsynth.cli import main
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError, DataError, LedgerError, ReleaseError, SchemaError, has_controls
from repsynth.io import office
from repsynth.io.source import File
from repsynth.io.sources import check_columns, open_source
from repsynth.io.write import write_table
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings, read_settings
from repsynth.privacy.ledger import Ledger
from repsynth.schema import Boolean, Category, Schema, parse_schema, schema_from_dict, schema_to_dict
from repsynth.schema.sdv import from_sdv
from repsynth.scoring import weights

RULES = [*weights.RULES, "random"]


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data(), rule=st.sampled_from(RULES), mu=st.sampled_from([0.1, 3.0, 300.0]), public=st.booleans())
def test_any_schema_any_table_replays_on_its_neighbour(
    data: st.DataObject, rule: str, mu: float, public: bool
) -> None:
    schema = data.draw(schemas())
    table = data.draw(tables(schema))
    declared = table.num_rows if public else None
    model = data.draw(st.sampled_from(list(MODELS) if len(schema.learned) > 1 else ["naive-bayes"]))
    budget = options_of(model, mu if model != "autoregressive" else 3.0)  # each takes long to calibrate
    plan = make_plan(schema, Settings.of(delta=1e-6, weights=rule, public_rows=declared, model=model, **budget))
    recorded = record_run(plan, table)
    check_replay(plan, table, data.draw(st.integers(0, table.num_rows - 1)), recorded)
    records = records_of(table, schema)
    for measured in recorded[1]:
        check_contribution(measured.statistic, records)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
@settings(max_examples=25)
@given(data=st.data())
def test_any_schema_makes_a_release_that_can_be_sampled_saved_and_loaded(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = data.draw(schemas())
    model = data.draw(st.sampled_from(list(MODELS) if len(schema.learned) > 1 else ["naive-bayes"]))
    asked = Settings.of(epsilon=1.0, model=model, **options_of(model))
    release = synthesize(data.draw(tables(schema)), schema, settings=asked)  # type: ignore[arg-type]
    folder = release.save(tmp_path_factory.mktemp("release") / "release")
    out = Release.load(folder).sample(20)
    assert out.num_rows == 20
    check_columns(open_source(out), schema)
    for records in LocalEngine.open(open_source(out), schema).per_record():
        for column in schema.learned:
            if not column.missing:
                assert (records.codes[column.name] >= 0).all(), "every synthetic cell is inside the domain"


@given(schemas())
def test_every_schema_there_and_back(schema: object) -> None:
    assert schema_from_dict(json.loads(json.dumps(schema_to_dict(schema)))) == schema  # type: ignore[arg-type]


LINES = """one_row_per_person = true
[columns.a];[columns];type = "integer";type = "category";type = 3;min = 1;max = 9;max = nan;max = 1e400
values = [1, 1];values = [];label = "a";confirmed = 1;[[columns.a]];a = {b = {c = 1}};missing = true;[columns.'']
min = 2020-01-01;max = 2020-01-01T00:00:00Z""".replace("\n", ";")
TOML = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(LINES.split(";")), max_size=12).map("\n".join))


@settings(max_examples=300)
@given(TOML)
def test_the_schema_parser_gives_a_schema_or_a_clear_error(text: str) -> None:
    try:
        schema = parse_schema(text)
        assert schema_from_dict(schema_to_dict(schema)) == schema
    except SchemaError as error:
        assert all(problem and "\n" not in problem.split(": not valid TOML")[0] for problem in error.problems)


def test_a_schema_nested_a_thousand_deep() -> None:
    with pytest.raises(SchemaError):
        parse_schema("a = " + "[" * 5000 + "]" * 5000)


@pytest.mark.parametrize("key", ["{}", "[{}]", "a = {{{}}}"])
@pytest.mark.parametrize("part", ["a", '"\\""', "'b' "])
def test_keys_of_very_many_parts_take_no_memory(key: str, part: str, tmp_path: Path) -> None:
    text = key.format(".".join([part] * 3000) + (" = 1" if key != "[{}]" else ""))
    tracemalloc.start()
    with pytest.raises(SchemaError, match="too deep or malformed"):
        parse_schema(text)
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(ConfigError, match="too deep or malformed"):
        read_settings(tmp_path / "plan.toml")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def a_workbook(path: Path, *cells: str) -> Path:
    """A small workbook with text in these cells."""
    main, relations = (
        f"http://schemas.openxmlformats.org/{kind}"
        for kind in ("spreadsheetml/2006/main", "officeDocument/2006/relationships")
    )
    packaged = "http://schemas.openxmlformats.org/package/2006/relationships"

    def points_to(kind: str, target: str) -> str:
        return (
            f'<Relationships xmlns="{packaged}"><Relationship Id="r1" Type="{relations}/{kind}" '
            f'Target="{target}"/></Relationships>'
        )

    rows = "".join(f'<row><c r="{cell}" t="inlineStr"><is><t>a</t></is></c></row>' for cell in cells)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", points_to("officeDocument", "xl/workbook.xml"))
        archive.writestr("xl/_rels/workbook.xml.rels", points_to("worksheet", "worksheets/sheet1.xml"))
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{relations}"><sheets><sheet name="s" sheetId="1" r:id="r1"/>'
            "</sheets></workbook>",
        )
        archive.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
        )
    return path


def test_a_small_workbook_takes_little_memory(tmp_path: Path) -> None:
    """The reader makes room for all cells between the outermost ones: 550 GB here."""
    pytest.importorskip("python_calamine")
    assert open_source(a_workbook(tmp_path / "near.xlsx", "A1", "A9")).names == ("a",)
    far = a_workbook(tmp_path / "far.xlsx", "A1", "XFD1048576")
    assert far.stat().st_size < 2000
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33)); "
    code = limit + f"import repsynth; repsynth.draft_schema({str(far)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DataError" in done.stderr.splitlines()[-1]
    assert "1,048,576 rows and 16,384 columns, most of them empty" in done.stderr
    with zipfile.ZipFile(far, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/zeros", bytes(2**27))
    with pytest.raises(DataError, match="grows to more than 200 times its size"):
        open_source(far)


@pytest.mark.parametrize("inside", range(1, 10))
def test_a_far_cell_is_found_where_a_chunk_ends_inside_its_name(
    inside: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cell = tmp_path / "far.xlsx", "XFD1048576"
    with zipfile.ZipFile(a_workbook(path, "A1", "A2", cell, "A3")) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
    monkeypatch.setattr(office, "_CHUNK", sheet.index(cell.encode()) + inside)
    with pytest.raises(DataError, match="1,048,576 rows and 16,384 columns, most of them empty"):
        office._check_size(File.at(path))  # not the reader, which would take the memory


@pytest.fixture(scope="module")
def plain() -> Release:
    table = pa.table({"age": [20, 30] * 50, "smoker": ["yes", "no"] * 50})
    schema = "one_row_per_person = true\nlabel = 'smoker'\ncolumns.age = {type = 'integer', min = 0, max = 99}\n"
    schema += "columns.smoker = {type = 'category', values = ['yes', 'no']}"
    return synthesize(table, parse_schema(schema), epsilon=1.0, delta=1e-6, model="naive-bayes", weights="uniform")


def test_control_characters_are_found() -> None:
    marks = ["\x1b[2J", "\x9b2J", "\x7f", "\r", "\n", "\0", "\u202e", "\u2066", "\u200f", "\u061c"]
    assert [mark for mark in marks if not has_controls(f"age{mark}")] == []


@pytest.mark.parametrize("mark", ["\x1b[2J", "\x9b2J", "\n", "\0", "\u202e"])
def test_no_control_character_reaches_a_terminal(
    mark: str, plain: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plain.save("release")
    named, escaped = f"age{mark}", json.dumps(f"age{mark}")
    column = "{type = 'category', values = ['a', 'b']}"
    declared = f"one_row_per_person = true\ncolumns.a = {column}\n"
    wrong = (
        f"one_row_per_person = true\ncolumns.{escaped} = {column}",
        declared.replace("'a'", escaped),
        f"label = {escaped}\n{declared}",
        f"{escaped} = 1\n{declared}",
        f"{declared}[[rules]]\nrequire = {escaped}",
    )
    for number, text in enumerate(wrong):
        Path(f"{number}.toml").write_text(text, encoding="utf-8")
        with pytest.raises(SchemaError, match="control character"):
            parse_schema(text)
        assert main(["plan", "--schema", f"{number}.toml", "--epsilon", "1"]) == 2
    Path("plan.toml").write_text(f"epsilon = 1.0\ngoal = {escaped}")
    assert main(["plan", "--schema", "0.toml", "--plan", "plan.toml"]) == 2
    described = Path("release/release.json").read_text()
    Path("release/release.json").write_text(described.replace('"age"', escaped))
    for command in ("inspect release", "sample release -n 3 -o x.csv", "report release -o x.html"):
        assert main(command.split()) == 2
    pq.write_table(pa.table({named: ["a", "b"]}), "t.parquet")
    with pytest.raises(DataError, match="name of column 1 has a control character"):
        open_source("t.parquet")
    assert main(["check", "t.parquet", "--schema", "0.toml"]) == 2
    assert main(["schema", "t.parquet", "-o", "s.toml"]) == 2
    with pytest.raises(ConfigError, match="control character"):
        from_sdv({"columns": {named: {"sdtype": "id"}}})
    with pytest.raises(SchemaError, match="control character"):
        repsynth.plan(Schema(columns=(Boolean(name=named),), one_row_per_person=True), epsilon=1.0)
    said = "".join(capsys.readouterr())
    assert said.count("control character") >= 8
    assert not has_controls(said.replace("\n", ""))


def test_a_draft_leaves_out_cells_with_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["yes", "no"] * 50 + ["no\x1b[2J", "n\u202eo"]
    text = draft_schema(pa.table({"a": cells, "b": [1.5, 2.5] * 51}))
    assert not has_controls(text.replace("\n", ""))
    schema = parse_schema(text)
    assert isinstance(schema.columns[0], Category)
    assert (schema.columns[0].values, schema.columns[0].missing) == (("no", "yes"), True)


SMALL = parse_schema(
    'one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.b]\ntype = "boolean"\n'
)


def read_or_refuse(path: Path) -> None:
    try:
        table = open_source(path)
        check_columns(table, SMALL)
        for records in LocalEngine.open(table, SMALL).per_record():
            assert all(len(codes) == records.rows for codes in records.codes.values())
    except DataError as error:
        assert "\n" not in str(error)


@settings(max_examples=200)
@given(content=st.binary(max_size=300), header=st.booleans())
def test_the_csv_reader_reads_or_refuses(
    content: bytes, header: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes((b"a,b\n" if header else b"") + content)
    read_or_refuse(path)


@settings(max_examples=80)
@given(position=st.integers(0, 2000), garbage=st.binary(min_size=1, max_size=8))
def test_the_parquet_reader_reads_or_refuses(
    position: int, garbage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [True, False, None]}), path)
    content = bytearray(path.read_bytes())
    position %= len(content)
    content[position : position + len(garbage)] = garbage
    path.write_bytes(bytes(content))
    read_or_refuse(path)


@pytest.mark.slow
@settings(max_examples=60)
@given(content=st.binary(max_size=400), real=st.booleans())
def test_the_ledger_opens_or_refuses(content: bytes, real: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    if real:
        Ledger.create(path)
        content = path.read_bytes()[:2000] + content + path.read_bytes()[2000 + len(content) :]
    path.write_bytes(content)
    try:
        assert Ledger(path).datasets() == ()
    except LedgerError:
        return


def test_a_release_with_paths_in_it_writes_nothing_outside(tmp_path: Path) -> None:
    sim = datasets.load("sim")
    folder = synthesize(sim.table.slice(0, 50), sim.schema, epsilon=1.0).save(tmp_path / "release")
    with zipfile.ZipFile(folder / "arrays.npz", "a") as archive:
        archive.writestr("../../evil.npy", b"boo")
    described = json.loads((folder / "release.json").read_text())
    described["arrays_sha256"] = hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()
    (folder / "release.json").write_text(json.dumps(described))
    with pytest.raises(ReleaseError):
        Release.load(folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["arrays.npz", "release", "release.json"]


def test_no_formula_reaches_a_spreadsheet(tmp_path: Path) -> None:
    formulas = ["=1+1", "+cmd", "-cmd", "@sum", "\tx", " =1", "\n=1", "＝1", "+E1", "-$E1", "-e9", "+.E1"]
    others = ["-3", "+4.5", "+1e5", "-$1,000.50", "-.5E-3", "-inf", "-", "<=50K", "plain", "a=b"]
    cells = [*formulas, *others]
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    for kind in kinds:
        table = pa.table({"a": pa.array(cells).cast(kind), "n": [-1.5] * len(cells), "=name": [1] * len(cells)})
        write_table([lambda table=table: table], table.schema, tmp_path / f"{kind.id}.csv")
        written = pacsv.read_csv(
            tmp_path / f"{kind.id}.csv",
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types={"a": pa.string()}),
        )
        assert written["a"].to_pylist() == [*(f"'{cell}" for cell in formulas), *others]
        assert written.column_names == ["a", "n", "'=name"]
        assert written["n"].to_pylist() == [-1.5] * len(cells)


def test_the_command_line_never_shows_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("noise.csv").write_bytes(bytes(range(256)) * 20)
    Path("noise.toml").write_bytes(bytes(range(256)))
    Path("noise.parquet").write_bytes(bytes(range(256)) * 20)
    Path("noise.db").write_bytes(bytes(range(256)) * 20)
    Path("schema.toml").write_text("one_row_per_person = true\n[columns.a]\ntype = 'boolean'\n")
    Path("release").mkdir()
    Path("release/release.json").write_bytes(bytes(range(256)))
    for command in (
        "schema noise.csv -o s.toml",
        "schema noise.parquet -o s.toml",
        "plan --schema noise.toml --epsilon 1",
        "plan --schema schema.toml --plan noise.toml",
        "synthesize noise.parquet --schema schema.toml --epsilon 1",
        "audit noise.csv --schema schema.toml --epsilon 1",
        "inspect release",
        "sample release -n 3 -o x.csv",
        "risk noise.csv --release release -o d.parquet",
        "ledger show noise.db",
        "ledger init noise.db --epsilon 1",
    ):
        assert main(command.split()) in (0, 2), command
        assert "Traceback" not in capsys.readouterr().err

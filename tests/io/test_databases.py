"""Databases: which rows are read, types of their own, passwords, and connections that are lost."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import ALL_TYPES, make_people
from places import SECRET, Codes, Place, codes_of, in_duckdb, in_sqlite, message_of, written
from postgres import PASSWORD, Server

import repsynth
from repsynth.cli.main import main
from repsynth.errors import ConfigError, RepsynthWarning
from repsynth.io.reading import ReadOptions
from repsynth.io.sources import open_source
from repsynth.io.sql import parse_address
from repsynth.run.payment import open_payer
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("numeric", ["1", "1.50", "NaN", "Infinity", "1e400", "-0.0012", None, "12345678901234567890"]),
        ("money", ["12.34", "0", None]),
        ("mood", ["sad", "ok", None]),
        ("uuid", ["00000000-0000-0000-0000-000000000001", None]),
        ("inet", ["10.0.0.1/32", None]),
        ("char(4)", ["ok", "x", None]),
        ("date", ["2020-01-01", "infinity", "-infinity", "4713-01-01 BC", None]),
        ("timestamp", ["2020-01-01", "infinity", "-infinity", "294276-01-01", None]),
        ("timestamptz", ["2020-01-01 UTC", "infinity", None]),
    ],
)
def test_types_of_postgresql_that_arrow_lacks(kind: str, cells: list[str | None], server: Server) -> None:
    times, others = (
        """
one_row_per_person = true
[columns.t]
type = "datetime"
min = 1990-01-01
max = 2030-01-01
""",
        """
[columns.a]
type = "category"
values = ["1", "1.5", "ok", "sad", "12.34", "00000000-0000-0000-0000-000000000001", "10.0.0.1/32"]
[columns.n]
type = "number"
min = 0
max = 100
""",
    )
    schema = parse_schema(times if kind in ("date", "timestamp", "timestamptz") else times + others)
    names = [column.name for column in schema.columns]
    server.run("DROP TABLE IF EXISTS odd", "DROP TYPE IF EXISTS mood", "CREATE TYPE mood AS ENUM ('sad', 'ok')")

    def codes(cells: list[str | None]) -> Codes:
        values = ["NULL" if cell is None else f"'{cell}'" for cell in cells]
        rows = ", ".join(f"({', '.join([value] * len(names))})" for value in values)
        made = f"CREATE TABLE odd ({', '.join(f'{name} {kind}' for name in names)})"
        server.run("DROP TABLE IF EXISTS odd", made, f"INSERT INTO odd VALUES {rows}")
        return codes_of(open_source(server.address(table="public.odd")), schema)

    together, alone = codes(cells), [codes([cell]) for cell in cells]
    assert together == {name: [each[name][0] for each in alone] for name in names}
    assert together["a" if "a" in names else "t"][0] >= 0
    if "infinity" in cells:
        assert together["t"][1] == -1, "neither the first day nor the last"
    if kind == "money":
        assert together["n"][0] == int(0.1234 * 2**40), "12.34, neither 1234 nor cents"


@pytest.mark.parametrize(
    "kind", ["sqlite", "duckdb", pytest.param("postgresql", marks=[pytest.mark.server, pytest.mark.smoke])]
)
def test_tables_and_queries_of_a_database(
    kind: str, place: Callable[..., Place], people: pa.Table, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = place(kind, people)
    where = str(put.table).replace("&table=people", "")
    young = people.filter(pc.less(people["age"], 40))

    def read(**how: str) -> Codes:
        return codes_of(open_source(where, ReadOptions(**how)), schema)

    assert read(table_name="people") == codes_of(open_source(people), schema)
    assert read(query="select * from people where cast(age as integer) < 40") == codes_of(
        open_source(young), schema
    )
    assert "no table 'nobody'" in message_of(lambda: read(table_name="nobody"))
    assert "no table 'people; --'" in message_of(lambda: read(table_name="people; --"))
    for query in (
        *("select * from nobody", "selec", "select nothing from people", "delete from people"),
        *("select 1; select 2",),
    ):
        assert message_of(lambda query=query: read(query=query))
    with pytest.warns(RepsynthWarning, match="LIMIT: the promise is about its rows"):
        read(query="select * from people limit 5")
    with pytest.raises(ConfigError, match="a table or a query, not both"):
        read(table_name="people", query="select 1")
    assert codes_of(put.open(), schema) == codes_of(open_source(people), schema), "nothing was deleted"


def test_a_database_with_several_tables_wants_to_know_which(tmp_path: Path) -> None:
    path = in_sqlite(pa.table({"a": [1]}), tmp_path).path
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE others (a)")
    connection.close()
    assert "name the table with --table (there are others, people)" in message_of(lambda: open_source(path))
    with sqlite3.connect(tmp_path / "none.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("DROP TABLE t")
    connection.close()
    assert "holds no table" in message_of(lambda: open_source(tmp_path / "none.sqlite"))


def test_a_query_of_duckdb_reaches_no_other_file(tmp_path: Path) -> None:
    """It would guess types from cells there."""
    put = in_duckdb(pa.table({"a": [1]}), tmp_path)
    written(tmp_path / "other.csv", b"a\n1\n")
    query = f"select * from read_csv('{tmp_path / 'other.csv'}')"
    assert "cannot run" in message_of(lambda: open_source(put.table, ReadOptions(query=query)))


def test_a_file_of_duckdb_may_end_in_db(tmp_path: Path) -> None:
    path = in_duckdb(pa.table({"a": [1]}), tmp_path).path.rename(tmp_path / "t.db")
    assert open_source(path).kind == "duckdb"


def failing(place: Callable[..., Place], kind: str) -> str:
    put = place(kind, pa.table({"a": ["1", SECRET]}))
    where = str(put.table).replace("&table=people", "")
    overflows = "select abs(-9223372036854775807 - 1) + 0 * length(a) as a from people"
    query = overflows if kind == "sqlite" else "select cast(a as integer) as a from people"
    return message_of(lambda: list(open_source(where, ReadOptions(query=query)).batches(["a"])))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_that_fails_at_some_row_of_a_file_quotes_no_cell(kind: str, place: Callable[..., Place]) -> None:
    assert SECRET not in failing(place, kind)


@pytest.mark.server
def test_nor_does_one_that_fails_at_a_server(place: Callable[..., Place]) -> None:
    said = failing(place, "postgresql")
    assert SECRET not in said
    assert "the query failed before all rows were read" in said


def test_an_address_is_shown_without_its_password() -> None:
    address = parse_address("postgresql://me:tr0ub4dor@host:5432/db?table=people&sslmode=require", ReadOptions())
    assert address.place == "the PostgreSQL address"
    assert address.full == "postgresql://me:tr0ub4dor@host:5432/db?sslmode=require"
    assert address.reading == ReadOptions(table_name="people")
    own = parse_address("postgresql://host/db?query=select%201", ReadOptions(table_name="other"))
    assert own.reading == ReadOptions(query="select 1"), "what stands in the address counts more"
    for text in ("me:a#b@host", "me:a@b@host", "me:a/b@host/db", "me:a?b@host/db", "me:a:b@host", "me:a b@host"):
        with pytest.raises(ConfigError, match="percent-encode") as caught:
            parse_address(f"postgresql://{text}", ReadOptions())
        assert text not in str(caught.value)


# --- passwords and lost connections ---

ADDRESSES = (
    " postgresql://me:tr0ub4dor@host/db?table=people",
    "'postgresql://me:tr0ub4dor@host/db?table=people'",
    "jdbc:postgresql://host/db?user=me&password=tr0ub4dor",
    "host=localhost password=tr0ub4dor dbname=db",
    "postgresql:/me:tr0ub4dor@host/db",
    "postgresql//me:tr0ub4dor@host/db",
    "postgresql://me:11235/tr0ub4dor",
    "me:tr0ub4dor@host",
    "tls://me:tr0ub4dor@host:8786",
    "x" * 300 + ":tr0ub4dor@host",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_what_could_be_an_address_is_never_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text("one_row_per_person = true\n[columns.a]\ntype = 'boolean'\n")
    Path("a.csv").write_text("a\ntrue\n")
    for command in (
        ["check", address, "--schema", "schema.toml"],
        ["check", "a.csv", address, "--schema", "schema.toml"],
        ["check", "a.csv", "--schema", address],
        ["schema", f"{address}*", "-o", "new.toml"],
        ["plan", "--schema", "schema.toml", "--plan", address],
        ["plan", "--schema", "schema.toml", f"--epsilon={address}"],
        ["synthesize", "a.csv", "--schema", "schema.toml", "--epsilon", "1", "--ledger", address],
        ["synthesize", "a.csv", "--schema", "schema.toml", "--epsilon", "1", "--engine", address],
        ["inspect", address],
        ["inspect", "release", address],
        ["ledger", "init", address + "/x", "--epsilon", "1"],
        [address],
    ):
        for more in ([], ["--json"]):
            try:
                assert main([*command, *more]) == 2
            except SystemExit as ended:
                assert ended.code == 2
            said = "".join(capsys.readouterr())
            assert "tr0ub4dor" not in said, command
            assert "address" in said or "from tls://;" in said, (command, said)
    said = message_of(lambda: open_source(Path(address)))
    assert said.startswith(("the PostgreSQL address", "what looks like a database address")), said


def test_a_file_that_is_there_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("me@12:30.csv").write_text("a\ntrue\n")
    assert open_source("me@12:30.csv").place == "me@12:30.csv"


@pytest.mark.server
def test_a_password_is_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server.store(make_people(5), "people")
    assert "name the table with --table" in message_of(lambda: open_source(server.address()))
    secret = "tr0ub4dor"
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    addresses = [
        server.address(secret, table="people"),
        server.address(secret, database="nowhere", table="people"),
        server.address(None, table="people", password=secret),
        server.address(secret, table="people").replace(str(server.socket), "/nowhere"),
        server.address(f"{secret}#x", table="people"),
        server.address(f"{secret}@x", table="people"),
        server.address(f"{secret}/x?y", table="people"),
        server.address(f"{secret}:x", table="people"),
        server.address(secret, table="people", port=secret),
        f"mysql://me:{secret}@host/db",
    ]
    for address in addresses:
        for more in ([], ["--json"]):
            assert main(["check", address, "--schema", str(tmp_path / "schema.toml"), *more]) == 2
            said = "".join(capsys.readouterr())
            assert secret not in said, said
            assert len(said) > 20
    assert "the password is wrong" in message_of(lambda: open_source(addresses[0]))
    assert "percent-encode" in message_of(lambda: open_source(addresses[4]))
    assert "password" not in repr(open_source(server.address(table="people")))
    assert PASSWORD not in repr(open_source(server.address(table="people")))


@pytest.mark.server
def test_a_password_may_stand_where_postgresql_looks_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.store(make_people(5), "people")
    address = server.address(None, table="people")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / ".pgpass"))
    assert "set PGPASSWORD" in message_of(lambda: open_source(address))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert open_source(address).names[0] == "person"
    monkeypatch.delenv("PGPASSWORD")
    (tmp_path / ".pgpass").write_text(f"*:*:*:*:{PASSWORD}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    assert open_source(address).names[0] == "person"


@pytest.mark.server
def test_a_connection_lost_in_the_middle_leaves_no_release_and_its_cost_spent(
    server: Server, tmp_path: Path
) -> None:
    server.run(
        "DROP TABLE IF EXISTS long",
        "CREATE TABLE long AS SELECT i % 9 AS a, repeat('x', 200) AS b FROM generate_series(1, 400000) AS i",
    )
    schema = parse_schema(
        "one_row_per_person = true\n"
        '[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.b]\ntype = "category"\nvalues = ["x", "y"]\n'
    )
    source = open_source(server.address(table="long"))

    def cut(columns: Any) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(source.batches(columns)):
            yield batch
            if number == 0:
                server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    ledger = repsynth.Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", repsynth.Budget.approximate(epsilon=4.0, delta=1e-6))
    plan = repsynth.plan(schema, epsilon=1.0, delta=1e-6)
    said = message_of(lambda: run(plan, replace(source, batches=cut), payer=open_payer(ledger, None)))
    assert "connection was lost or the query failed before all rows were read" in said
    (spent,) = ledger.balance("people").spendings
    assert not spent.finished, "set aside before the data was read, and it stays so"

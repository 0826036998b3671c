"""A PostgreSQL server of the tests' own in a temporary folder, reached by a socket there."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

PASSWORD = "pa55-Word"
USER = "curator"


@dataclass(frozen=True)
class Server:
    """Where it listens."""

    socket: Path

    def address(self, secret: str | None = PASSWORD, *, database: str = "postgres", **knobs: str) -> str:
        password = "" if secret is None else f":{secret}"
        rest = "".join(f"&{name}={value}" for name, value in knobs.items())
        return f"postgresql://{USER}{password}@/{database}?host={self.socket}{rest}"

    def run(self, *statements: str) -> None:
        with self.connected() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def store(self, table: pa.Table, name: str) -> None:
        with self.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f'DROP TABLE IF EXISTS "{name}"')
            cursor.adbc_ingest(name, table, mode="create")
            connection.commit()

    def connected(self) -> Any:
        from adbc_driver_postgresql import dbapi

        return contextlib.closing(dbapi.connect(self.address()))


def _programs() -> Path:
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not places:
        pytest.skip("no PostgreSQL server is installed here")
    return places[-1]


def _somebody() -> dict[str, Any]:
    """Whom the server runs as: it refuses to do so as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("a PostgreSQL server does not run as root, and there is nobody else here")


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start one and stop it."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    programs, somebody = _programs(), _somebody()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # short, as a socket's path must be
    try:
        folder.chmod(0o711)
        (folder / "password").write_text(PASSWORD)
        place = folder / "server"
        place.mkdir()
        if somebody:
            for path in (place, folder / "password"):
                os.chown(path, somebody["user"], somebody["group"])
        options = {"check": True, "capture_output": True, "cwd": "/", **somebody}
        made = ["-D", place / "data", "-U", USER, "--pwfile", folder / "password", "-A", "scram-sha-256"]
        subprocess.run([programs / "initdb", *made, "-E", "UTF8", "--locale=C", "--no-sync"], **options)
        listening = f"-c listen_addresses='' -k {place} -c fsync=off -c autovacuum=off"
        control = [programs / "pg_ctl", "-D", place / "data", "-w", "-l", place / "log"]
        subprocess.run([*control, "-t", "120", "-o", listening, "start"], **options)
        try:
            yield Server(place)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

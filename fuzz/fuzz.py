"""Coverage-guided fuzzing with atheris of the readers of strangers' files.

    python fuzz/fuzz.py schema|plan|csv|parquet|release|ledger -max_total_time=60 -rss_limit_mb=2048 -timeout=20

Any exception but the reader's own clear error, a hang or more memory than the limit is a finding.
"""

import contextlib
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["repsynth", "tomllib", "msgspec"]):
    from repsynth import datasets, synthesize
    from repsynth.engine.local import LocalEngine
    from repsynth.errors import ConfigError, DataError, LedgerError, ReleaseError, SchemaError
    from repsynth.io.sources import check_columns, open_source
    from repsynth.planning.settings import Settings, read_settings, settings_to_toml
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.release import Release
    from repsynth.schema import parse_schema

SMALL = parse_schema(
    'one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.b]\ntype = "boolean"\n'
)
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz"))


def fuzz_schema(data: bytes) -> None:
    """schema.toml."""
    with contextlib.suppress(SchemaError):
        parse_schema(data.decode("utf-8", errors="replace"))


def fuzz_plan(data: bytes) -> None:
    """plan.toml."""
    (FOLDER / "plan.toml").write_bytes(data)
    with contextlib.suppress(ConfigError):
        Settings.of(**read_settings(FOLDER / "plan.toml"))


def fuzz_csv(data: bytes) -> None:
    """A CSV table, mostly below a sound header."""
    _table(FOLDER / "t.csv", b"a,b\n" + data if data[:1] > b"\x40" else data)


def fuzz_parquet(data: bytes) -> None:
    """A Parquet table."""
    _table(FOLDER / "t.parquet", data)


def _table(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        source = open_source(path)
        check_columns(source, SMALL)
        for _ in LocalEngine.open(source, SMALL).per_record():
            pass


def fuzz_release(data: bytes) -> None:
    """The JSON as given, or the arrays with a hash that fits, beside the other file of a sound release."""
    first = data[0] if data else 0
    sound = list(SOUND.values())[first % 128 % len(SOUND)]
    folder = FOLDER / "naive-bayes"
    if first < 128:
        (folder / "release.json").write_bytes(data[1:])
        (folder / "arrays.npz").write_bytes(sound["arrays.npz"])
    else:
        described = json.loads(sound["release.json"])
        described["arrays_sha256"] = hashlib.sha256(data[1:]).hexdigest()
        (folder / "release.json").write_text(json.dumps(described))
        (folder / "arrays.npz").write_bytes(data[1:])
    with contextlib.suppress(ReleaseError):
        Release.load(folder).sample(5)


def fuzz_ledger(data: bytes) -> None:
    """A ledger file."""
    path = FOLDER / "ledger.db"
    for leftover in FOLDER.glob("ledger.db*"):
        leftover.unlink()
    path.write_bytes(data)
    with contextlib.suppress(LedgerError):
        ledger = Ledger(path)
        for name in ledger.datasets():
            ledger.balance(name)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "schema": fuzz_schema,
    "plan": fuzz_plan,
    "csv": fuzz_csv,
    "parquet": fuzz_parquet,
    "release": fuzz_release,
    "ledger": fuzz_ledger,
}
SOUND: dict[str, dict[str, bytes]] = {}


def seeds(target: str) -> Path:
    """A corpus of sound files to start from."""
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    sim = datasets.load("sim")
    for model in ("naive-bayes", "aim", "autoregressive"):
        release = synthesize(sim.table.slice(0, 500), sim.schema, epsilon=4.0, model=model).save(FOLDER / model)
        SOUND[model] = _files(release)
    if target == "schema":
        for name in datasets.NAMES:
            (corpus / name).write_text(datasets.schema_text(name))
    elif target == "plan":
        (corpus / "plan").write_text(
            settings_to_toml(Settings.of(epsilon=1.0, model="autoregressive", weights="hinge-exp"))
        )
    elif target == "release":
        for bit, sound in enumerate(SOUND.values()):
            (corpus / f"json{bit}").write_bytes(bytes([bit]) + sound["release.json"])
            (corpus / f"npz{bit}").write_bytes(bytes([128 + bit]) + sound["arrays.npz"])
    elif target == "ledger":
        from repsynth.privacy.budget import Budget

        ledger = Ledger.create(FOLDER / "seed.db")
        ledger.init("data", Budget.approximate(epsilon=1.0, delta=1e-6))
        ledger.reserve("data", {"all": 0.01}, what="a seed")
        (corpus / "ledger").write_bytes((FOLDER / "seed.db").read_bytes())
    elif target == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"a": [1, 2, 3], "b": [True, False, None]}), corpus / "table")
    else:
        (corpus / "table").write_bytes(b'a,b\n1,true\n"2",no\n')
    return corpus


def _files(release: Path) -> dict[str, bytes]:
    return {name: (release / name).read_bytes() for name in ("release.json", "arrays.npz")}


def main() -> None:
    """Run one target."""
    target = sys.argv.pop(1)
    corpus = seeds(target)
    atheris.Setup([*sys.argv, "-max_len=65536", str(corpus)], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()

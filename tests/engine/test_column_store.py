"""Codes: encoded once, put aside privately, and summed up to the same bits as the records themselves."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import ALL_TYPES, make_people, options_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import schemas, tables

from repsynth.arrays import Int32s, Ints
from repsynth.columns.adaptive_histogram import ColumnHistograms
from repsynth.columns.cells import Bins, divided, public_cells
from repsynth.engine import ENGINES
from repsynth.engine import column_store as codes_module
from repsynth.engine.column_store import Codes, Spill
from repsynth.engine.local import Held, LocalEngine
from repsynth.errors import DataError
from repsynth.io.encode import EncodedTable
from repsynth.io.records import Records
from repsynth.io.sources import Source, open_source
from repsynth.io.values import Cut
from repsynth.mechanism.kernels import Count
from repsynth.mechanism.noise import seeded_entropy
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Discrete, Integer, Number, Numeric, Schema, parse_schema

LARGE = 2**30


def in_batches(table: pa.Table, rows: int) -> Source:
    """The same table, so many rows at a time."""
    source = open_source(table)

    def batches(columns: Any) -> Iterator[pa.RecordBatch]:
        yield from table.select(list(columns)).to_batches(max_chunksize=rows)

    return replace(source, batches=batches)


def all_bins(schema: Schema) -> tuple[ColumnHistograms, ...]:
    """Some that share their starts, and some that do not."""
    numeric = [column for column in schema.learned if isinstance(column, Numeric)]
    fine = [public_cells(column, 48) for column in numeric]
    coarse = [public_cells(column, 8) for column in numeric]
    divided_ = [divided(each, np.ones(each.numbers), least=0.0, parts=5) for each in coarse]
    others = [Bins.discrete(column) for column in schema.learned if isinstance(column, Discrete)]
    kernels = [(*others, *fine, *divided_), (*coarse, *divided_), (*fine, *coarse, *others)]
    return tuple(ColumnHistograms(kernel) for kernel in kernels if kernel)


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data())
def test_sums_over_codes_have_the_bits_of_sums_over_records(data: st.DataObject) -> None:
    """All column types, whatever the batches, the threads and where the codes are."""
    schema = data.draw(schemas())
    table = data.draw(tables(schema, most=40))
    plain = list(EncodedTable(open_source(table), schema))
    source = in_batches(table, data.draw(st.integers(1, 50)))
    memory, workers = data.draw(st.sampled_from([0, 64, LARGE])), data.draw(st.integers(1, 3))
    codes = Codes.of(EncodedTable(source, schema), workers=workers, memory=memory)
    assert codes.sum(Count()).tolist() == [table.num_rows]
    for kernel in all_bins(schema):
        assert codes.sum(kernel).tolist() == LocalEngine(plain).sum(kernel).tolist()
    for name in (column.name for column in schema.learned):
        back = np.concatenate(list(codes.each(lambda block, name=name: block.codes[name])))
        assert back.tolist() == [code for records in plain for code in records.codes[name].tolist()]


@given(
    starts=st.sets(st.integers(1, 2**45) | st.integers(1, 50), max_size=40),
    codes=st.lists(st.integers(-1, 2**45) | st.integers(-1, 60), max_size=60),
    sample=st.lists(st.integers(-1, 2**45) | st.integers(-1, 60), max_size=60),
)
def test_a_table_cuts_as_a_search_does(starts: set[int], codes: list[int], sample: list[int]) -> None:
    at = np.array(sorted({0, *starts}))
    wanted, seen = np.array([*codes, *starts], dtype=np.int64), np.array(sample, dtype=np.int64)
    expected = np.searchsorted(at, wanted, side="right") - 1
    assert Cut.at(at, seen).of(wanted).tolist() == expected.tolist()


class Plainly(LocalEngine):
    """Each sum over records as they are encoded, one after the other: what codes must not differ from."""

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "Plainly":
        return cls(list(EncodedTable(source, schema)))


def released(model: str, table: Any) -> list[list[int]]:
    """All noisy numbers of a release with seeded noise."""
    plan = make_plan(parse_schema(ALL_TYPES), Settings.of(epsilon=3.0, delta=1e-6, **options_of(model)))
    release = run(plan, open_source(table) if isinstance(table, pa.Table) else table, noise_seed=5)
    looks = [look.counts for look in release.stage.looks.values()]
    arrays = [release.stage.coarse.counts, *looks, *release.fit.dump()[1].values()]
    return [np.asarray(array).ravel().tolist() for array in arrays]


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(("chunk", "block", "tabulated", "memory"), [(64, 16, 2**16, 0), (50, 7, 2, LARGE)])
def test_releases_have_the_same_bits_as_without_codes(
    model: str, chunk: int, block: int, tabulated: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_people(400)
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "local", f"{__name__}:Plainly")
        expected = released(model, table)
    monkeypatch.setattr(codes_module, "CHUNK", chunk)
    monkeypatch.setattr(codes_module, "_BLOCK", block)
    monkeypatch.setattr(codes_module, "_TABULATED", tabulated)
    monkeypatch.setattr(codes_module, "how_many_workers", lambda: 3)
    monkeypatch.setattr(Codes.of.__func__, "__kwdefaults__", {"workers": None, "memory": memory})
    assert released(model, in_batches(table, 23)) == expected


def test_a_sorted_table_is_cut_by_a_sample_of_all_of_it() -> None:
    column = Number(name="x", min=0.0, max=1000.0)
    table = pa.table({"x": np.sort(np.random.default_rng(0).gamma(2.0, 50.0, 300_000))})
    codes = Codes.of(
        EncodedTable(open_source(table), Schema(one_row_per_person=True, columns=(column,))), workers=2
    )
    cut = codes._walk().cut("x", np.array([0, 2**30]))
    assert cut.shift > 20  # cells reach over all of it, not over the first rows alone


# --- where codes are put ----------------------------------------------------------------------------------


def test_what_does_not_fit_into_memory_is_in_a_file_that_nobody_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spill = Spill(limit=100)
    arrays = [np.arange(k, dtype=np.int32).reshape(-1, 2) for k in (10, 100, 0, 40)]
    kept = [spill.put(array) for array in arrays]
    assert spill.in_file == 4 * 140
    for get, array in zip(kept, arrays, strict=True):
        assert get().tolist() == array.tolist()
        assert get().shape == array.shape
    if os.name == "posix":
        assert list(tmp_path.iterdir()) == []
    spill.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, to: int) -> None: ...

        def close(self) -> None: ...

        def write(self, view: memoryview) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full())
    table = pa.table({"x": [1, 2, 3]})
    schema = Schema(one_row_per_person=True, columns=(Integer(name="x", min=0, max=9),))
    with pytest.raises(DataError, match=r"No space left on device.*Set TMPDIR") as error:
        Codes.of(EncodedTable(open_source(table), schema), memory=0)
    assert error.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_however_a_run_ends(how: signal.Signals, tmp_path: Path) -> None:
    code = """
import signal, time, numpy as np
from repsynth.engine.column_store import Spill
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
spill = Spill(limit=0)
kept = spill.put(np.arange(10_000))
print("ready", flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(how)
        assert process.wait(30) == -how
    assert list(tmp_path.iterdir()) == []


# --- training ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    def total(self, rows: Int32s) -> Ints:
        return rows.sum(axis=0).astype(np.int64)


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8), rate=st.sampled_from([0.0, 0.2, 1.0]))
def test_rows_that_are_put_aside_are_sampled_as_those_in_memory(sizes: list[int], rate: float) -> None:
    rows = np.arange(2 * sum(sizes), dtype=np.int32).reshape(-1, 2)
    pieces = np.split(rows, np.cumsum(sizes)[:-1])
    shelved = Held.of([rows[:0], *pieces], Spill(limit=40))
    plain = Held.of([rows])
    assert shelved.sum(Sum()).tolist() == plain.sum(Sum()).tolist()
    taken = shelved.sampled(rate, seeded_entropy(1))
    assert taken.rows.tolist() == plain.sampled(rate, seeded_entropy(1)).rows.tolist()


def test_training_holds_rows_aside_where_they_are_many() -> None:
    table = pa.table({"x": np.arange(1000) % 10})
    data = EncodedTable(
        open_source(table), Schema(one_row_per_person=True, columns=(Integer(name="x", min=0, max=9),))
    )

    def parts(records: Records) -> Int32s:
        return records.codes["x"].astype(np.int32)[:, None]

    engine = LocalEngine(data)
    assert len(engine.held(parts).pieces) == 1  # type: ignore[union-attr]
    engine.__dict__["_codes"] = Codes.of(data, memory=0)
    held = engine.held(parts)
    assert len(held.pieces) > 1  # type: ignore[union-attr]
    assert held.sum(Sum()).tolist() == [4500]

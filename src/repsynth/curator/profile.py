"""Profile a table: the distinct values of each column, and columns that another one determines. PRIVATE."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Floats, Ints
from repsynth.data.encode import plain_array, read_numbers, read_text
from repsynth.data.source import CELLS, cell_type, is_text, other_mark, read_cells, say_delimiter
from repsynth.data.sources import Source
from repsynth.errors import CONTROLS, DataError, printable
from repsynth.privacy.budget import DEFAULT_DELTA
from repsynth.privacy.gaussian import group_epsilon
from repsynth.privacy.shown import at_most


@dataclass(frozen=True)
class Look:
    """One column: its different values, how often each occurs, and which one stands in each row (-1: none).

    Text is without the blanks around it; a cell without text is none.

    >>> look = Look.of("age", pa.chunked_array([["30", " 41", "", "30"]]))
    >>> look.texts, look.counts.tolist(), look.codes.tolist()
    (['30', '41'], [2, 1], [0, 1, -1, 0])
    """

    name: str
    type: pa.DataType
    values: pa.Array
    counts: Ints
    codes: Ints

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray) -> "Look":
        values = column.combine_chunks()
        values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
        values = plain_array(values)
        if pa.types.is_null(values.type):
            values = values.cast(pa.large_string())
        if is_text(values.type) or values.type == CELLS:
            values = read_text(values)
            # No schema can have a value with control characters, so such a cell will count as missing.
            unread = pc.or_(pc.equal(values, ""), pc.match_substring_regex(values, CONTROLS))
            values = pc.if_else(unread, None, values)
        elif pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), None, values)
        encoded = values.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary)).astype(np.int64)
        look = cls(name, column.type, encoded.dictionary, counts, codes)
        try:
            _ = look.texts if look.is_text else None
        except UnicodeDecodeError:
            raise DataError(f"column {quoted(name)} holds bytes that are no text; convert it first") from None
        return look

    @property
    def rows(self) -> int:
        return len(self.codes)

    @property
    def cells(self) -> int:
        """How many cells are not empty."""
        return int(self.counts.sum())

    @property
    def distinct(self) -> int:
        return len(self.values)

    @property
    def is_text(self) -> bool:
        return is_text(self.values.type)

    @cached_property
    def texts(self) -> list[str]:
        """The different values as text."""
        return [text or "" for text in read_text(self.values).to_pylist()]

    @cached_property
    def numbers(self) -> Floats:
        """The different values as plainly written numbers, NaN where they are none."""
        if self.type == pa.float32():  # as it is written: 0.1, not 0.10000000149
            narrow = self.values.to_numpy(zero_copy_only=False).astype(np.float32)
            return np.array([float(str(value)) for value in narrow])
        if pa.types.is_decimal(self.type):  # Arrow is off by a little
            return np.array([float(value) for value in self.values.to_pylist()])
        return read_numbers(self.values)


def read_table(opened: Source) -> pa.Table:
    """Read a whole table; refuse one that a schema cannot describe."""
    if (mark := other_mark(opened)) is not None:
        raise DataError(f"{opened.place}: has one column only; {say_delimiter(mark)}")
    if len(set(opened.names)) < len(opened.names):
        raise DataError("a column name is used more than once; rename the columns first")
    batches = list(opened.batches(opened.names))
    table = pa.table(
        {
            name: _joined(
                [batch.column(name) for batch in batches] or [pa.array([], kind or pa.large_string())], kind
            )
            for name, kind in zip(opened.names, opened.types, strict=True)
        }
    )
    if opened.kind == "csv":
        table = table.cast(pa.schema([(name, pa.large_string()) for name in opened.names]))
        # The reader puts this mark in place of bytes that are no UTF-8 text.
        if any(pc.any(pc.match_substring(texts, "\ufffd")).as_py() for texts in table.columns):
            raise DataError(
                f"{opened.place}: not text in this encoding; name the right one with --encoding, such as cp1252"
            )
    for name, kind in zip(opened.names, opened.types, strict=True):
        if kind is not None and pa.types.is_nested(cell_type(kind)):
            raise DataError(f"column {quoted(name)} holds nested values; flatten it into plain columns first")
    return table


def _joined(parts: list[pa.Array], kind: pa.DataType | None) -> pa.ChunkedArray:
    """Join the batches of a column.

    A reader may have put texts into dictionaries. Files of one table may store a column in different types.
    """
    if kind is not None and not pa.types.is_dictionary(kind):
        parts = [part if part.type == CELLS else plain_array(part) for part in parts]
    if len({part.type for part in parts}) > 1:
        parts = [part if part.type == CELLS else read_cells(plain_array(part).to_pylist()) for part in parts]
    return pa.chunked_array(parts)


_SAMPLE = 1_000  # rows in which most pairs of columns already fail the test
_REPEATS = 10  # mean count of a value: a unique value determines everything
_EVIDENCE = 50  # rows that would differ by chance: a column that hardly varies follows from everything


def what_follows(looks: Sequence[Look]) -> dict[str, str]:
    """Say for each column that another one determines which one that is, and how many values it has.

    The source is the one with the fewest values. Of two columns that determine each other, the second follows.
    Missing counts as a value.
    """
    found: dict[str, str] = {}
    sizes = [look.distinct + (look.cells < look.rows) for look in looks]
    for b, target in enumerate(looks):
        for size, a in sorted(zip(sizes, range(len(looks)), strict=True)):
            both = size == sizes[b]
            if a == b or (both and a > b) or not 1 < sizes[b] <= size:
                continue
            if _determines(looks[a], target, size):
                how = "and the other way round" if both else f"which has {size:,} values"
                found[target.name] = f"follows from {quoted(looks[a].name)}, {how}"
                break
    return found


def _determines(source: Look, target: Look, size: int) -> bool:
    rows = source.rows
    fractions = np.append(target.counts, rows - target.cells) / rows
    differ = float(1 - fractions @ fractions)  # how often two rows differ in the target
    if size * _REPEATS > rows or (rows - size) * differ < _EVIDENCE:
        return False
    last = np.zeros(source.distinct + 1, dtype=np.int64)
    for sample in (slice(None, None, max(rows // _SAMPLE, 1)), slice(None)):
        mine, its = source.codes[sample], target.codes[sample]
        last[mine] = its  # missing, -1, is the last place
        if not np.array_equal(last[mine], its):
            return False
    return True


def quoted(text: str) -> str:
    """A TOML string; JSON's is one, but for some control characters."""
    return printable(json.dumps(text, ensure_ascii=False))


def some(count: int, thing: str) -> str:
    """Return a count with its noun: 1 row, 2,000 rows."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percent(part: float, whole: float = 1.0) -> str:
    """A fraction in words: neither 0 % of something nor 100 % of nearly all.

    >>> percent(1, 8), percent(1, 10_000), percent(9_999, 10_000), percent(0.0), percent(2, 2)
    ('12.5 %', '<0.1 %', '>99.9 %', '0 %', '100 %')
    """
    share = 100 * min(max(part / whole if whole else 0.0, 0.0), 1.0)
    if share in (0.0, 100.0):
        return f"{share:.0f} %"
    return "<0.1 %" if share < 0.1 else ">99.9 %" if share > 99.9 else f"{share:.1f} %"


def repeating(name: str, distinct: int, cells: int, most: int, *, exact: bool = True) -> str:
    """What it means that an id occurs in several rows."""
    about, more = ("", "") if exact else ("about ", " or more")
    epsilon = group_epsilon(1.0, DEFAULT_DELTA, most)
    return (
        f"it repeats: {about}{distinct:,} different values in {cells:,} rows, one of them in {most:,}{more} rows. "
        f"If it names persons, the guarantee is for one row: with ε = 1 at δ = {DEFAULT_DELTA:g} for a row, a "
        f"person with {most:,} rows has ε = {at_most(epsilon, 3)}, and may have more if a network is trained; "
        f'declare [person] column = "{name}" in the schema, and persons are protected with all rows'
    )

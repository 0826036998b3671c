"""A draft schema read off the data: a convenience that is *not* private, and says so at every bound.

Its output is for the curator, who must confirm or replace each bound and category before `synthesize`
accepts it.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from repsynth.curator.infer import Decision, decide
from repsynth.curator.profile import Look, quoted, read_table, some, what_follows
from repsynth.data.sources import open_source
from repsynth.errors import ConfigError, DataError
from repsynth.schema.sdv import Described

_MOST_CLASSES = 1_000
_NO_LABEL = '# label = "..."   # the column that analysts will predict'
_HEAD = """\
# A draft, written by looking at the data. Bounds and categories below are NOT private as they stand:
# an extreme value or a rare category is somebody's. Put in what is publicly known, then set
# confirmed = true. Out-of-range values will be clipped, unknown categories will count as missing.
confirmed = false
# Can one person have several rows? Remove one of the two "#" before the run:
# one_row_per_person = true       # no: every row is about a different person
# person = {column = "NAME"}      # yes: NAME is the column that identifies people; it has type = "id"
"""


class Draft(msgspec.Struct, frozen=True):
    """A draft: the text of the schema, and how each column was decided. PRIVATE: it quotes the data."""

    text: str
    rows: int
    warnings: tuple[str, ...]
    columns: tuple[Decision, ...]


def make_draft(
    source: Any,
    *,
    label: str | None = None,
    decimal: str | None = None,
    described: Mapping[str, Described] | None = None,
) -> Draft:
    """Draft a schema. `decimal` is the mark of numbers in text, and `described` what metadata says about columns.

    >>> import pyarrow as pa
    >>> print(make_draft(pa.table({"age": [30, 41, 52]})).text.splitlines()[-3])
    type = "integer"
    """
    opened = open_source(source)
    table, dropped = read_table(opened), opened.dropped()
    if label is not None and label not in table.column_names:
        raise DataError("the label is not one of the columns; check its spelling")
    known = check_described(described or {}, table.column_names)
    looks = [Look.of(name, table[name]) for name in table.column_names]
    for look in looks:
        if look.name == label and not 2 <= look.distinct <= _MOST_CLASSES:
            raise DataError(
                f"the label has {look.distinct:,} different values; it needs from 2 to {_MOST_CLASSES:,}"
            )
    columns = tuple(
        decide(
            look,
            is_label=look.name == label,
            decimal=decimal,
            labels=opened.labels.get(look.name, {}),
            described=known.get(look.name),
        )
        for look in looks
    )
    follows = what_follows([look for look, column in zip(looks, columns, strict=True) if column.type != "id"])
    columns = tuple(
        msgspec.structs.replace(
            column, reason=f"{column.reason}; {follows[column.name]}: leave it out and put it back afterwards"
        )
        if column.name in follows
        else column
        for column in columns
    )
    warnings = []
    if dropped:
        warnings.append(f"{some(dropped, 'row')} of the file with too many or too few cells: left out")
    if all(column.type == "id" or column.name == label for column in columns):
        warnings.append("there is nothing to learn: every column is an id; make a category or a number of one")
    return Draft(schema_text(_HEAD, columns, label, warnings), table.num_rows, tuple(warnings), columns)


def check_described(described: Mapping[str, Described], names: Sequence[str]) -> Mapping[str, Described]:
    """Return the metadata; refuse it if it describes columns that the table does not have."""
    if absent := [quoted(name) for name in described if name not in names]:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise ConfigError(
            f"the metadata describes {', '.join(absent[:3])}{more}, which the table does not have; are both of "
            "the same table?"
        )
    return described


def schema_text(head: str, columns: Sequence[Decision], label: str | None, warnings: Sequence[str]) -> str:
    """Return the text of a schema: the head, then each column with its reason."""
    lines = [*_comment("WARNING: ", warnings), head]
    lines.append(f"label = {quoted(label)}" if label else _NO_LABEL)
    for column in columns:
        plain = column.name.isascii() and column.name.replace("-", "").replace("_", "").isalnum()
        lines += ["", f"[columns.{column.name if plain else quoted(column.name)}]"]
        lines += [*_comment("", [column.reason]), *_comment("WARNING: ", column.warnings)]
        lines += [f'type = "{column.type}"', *column.lines]
    return "\n".join(lines) + "\n"


def _comment(mark: str, texts: Sequence[str]) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(mark + text, 113, initial_indent="# ", subsequent_indent="#   ")
    ]

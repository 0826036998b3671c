"""A draft schema read off the data: a convenience that is *not* private, and says so at every bound.

Its output is for the curator, who must confirm or replace each bound and category before `synthesize`
accepts it.
"""

import textwrap
from typing import Any

import msgspec

from repsynth.curator.decide import Decision, decide
from repsynth.curator.follows import Follows, what_follows
from repsynth.curator.look import Look, quoted, read_table, some
from repsynth.errors import DataError

_MOST_CLASSES = 1_000
_NO_LABEL = '# label = "..."   # the column that analysts will predict'
_HEAD = """\
# A draft, written by looking at the data. Bounds and categories below are NOT private as they stand:
# an extreme value or a rare category is somebody's. Put in what is publicly known, then set
# confirmed = true. Out-of-range values will be clipped, unknown categories will count as missing.
confirmed = false"""


class Draft(msgspec.Struct, frozen=True):
    """A draft: the text of the schema, and how each column was decided. PRIVATE: it quotes the data."""

    text: str
    rows: int
    warnings: tuple[str, ...]
    columns: tuple[Decision, ...]


def draft_schema(source: Any, *, label: str | None = None) -> str:
    """The text of a `schema.toml` to be completed by hand.

    >>> import pyarrow as pa
    >>> print(draft_schema(pa.table({"age": [30, 41, 52]})).splitlines()[-3])
    type = "integer"
    """
    return make_draft(source, label=label).text


def make_draft(source: Any, *, label: str | None = None) -> Draft:
    """The draft and the reasons for it."""
    table, dropped = read_table(source)
    if label is not None and label not in table.column_names:
        raise DataError("the label is not one of the columns; check its spelling")
    looks = [Look.of(name, table[name]) for name in table.column_names]
    for look in looks:
        if look.name == label and not 2 <= look.distinct <= _MOST_CLASSES:
            raise DataError(
                f"the label has {look.distinct:,} different values; it needs from 2 to {_MOST_CLASSES:,}"
            )
    columns = tuple(decide(look, is_label=look.name == label) for look in looks)
    learned = [look for look, column in zip(looks, columns, strict=True) if column.type != "id"]
    follows = what_follows(learned)
    columns = tuple(_with(column, follows.get(column.name)) for column in columns)
    warnings = []
    if dropped:
        warnings.append(f"{some(dropped, 'row')} of the file with too many or too few cells: left out")
    if all(column.type == "id" or column.name == label for column in columns):
        warnings.append("there is nothing to learn: every column is an id; make a category or a number of one")
    return Draft(_text(columns, label, warnings), table.num_rows, tuple(warnings), columns)


def _with(column: Decision, follows: Follows | None) -> Decision:
    """The decision, and that the column follows from another one."""
    if follows is None:
        return column
    where = "" if follows.whole else " in the rows looked at"
    each = "and the other way round" if follows.both else f"which has {follows.values:,} values"
    said = f"follows from {quoted(follows.source)}{where}, {each}: leave it out and put it back afterwards"
    return msgspec.structs.replace(column, reason=f"{column.reason}; {said}")


def _text(columns: tuple[Decision, ...], label: str | None, warnings: list[str]) -> str:
    lines = [*_comment("WARNING: ", warnings), _HEAD]
    lines.append(
        f"label = {quoted(label)}" if label else '# label = "..."   # the column that analysts will predict'
    )
    for column in columns:
        plain = column.name.isascii() and column.name.replace("-", "").replace("_", "").isalnum()
        lines += ["", f"[columns.{column.name if plain else quoted(column.name)}]"]
        lines += [*_comment("", [column.reason]), *_comment("WARNING: ", column.warnings)]
        lines += [f'type = "{column.type}"', *column.lines]
    return "\n".join(lines) + "\n"


def _comment(mark: str, texts: tuple[str, ...] | list[str]) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(mark + text, 113, initial_indent="# ", subsequent_indent="#   ")
    ]

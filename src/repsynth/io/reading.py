"""Options for reading a table: Python keywords and command-line flags of everything that reads one.

They are public knowledge about the file and reveal nothing about a cell.
"""

import codecs
import re
from dataclasses import replace
from typing import Annotated

import msgspec

from repsynth.errors import ConfigError
from repsynth.knobs import Knobs
from repsynth.schema import Number, Schema

_TABS = ("\\t", "tab")
_STATEFUL = re.compile(r"utf.?7|iso.?2022.*|hz.*|.*escape|punycode|idna|undefined|mbcs|oem")
"""Stateful encodings, in which one cell could change how others are read."""


def _knob(description: str, metavar: str, **more: str) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"metavar": metavar, **more})


class ReadOptions(Knobs, frozen=True):
    """How to read a table. Options that are None follow from the file and its name.

    >>> ReadOptions(delimiter="tab").delimiter
    '\\t'
    """

    delimiter: Annotated[str | None, _knob("CSV: the character between cells (, or a tab in .tsv)", "C")] = None
    encoding: Annotated[
        str | None, _knob("CSV and statistics files: how text is stored, such as cp1252 or utf-16 (utf-8)", "NAME")
    ] = None
    decimal: Annotated[
        str | None, _knob("CSV: the decimal mark of number columns for which the schema has none (.)", "C")
    ] = None
    table_name: Annotated[
        str | None, _knob("the table of a database, or the sheet of a workbook", "NAME", flag="--table")
    ] = None
    query: Annotated[
        str | None,
        _knob(
            "of a database, the rows that this SELECT gives: one per person, and none that depends on another "
            "person's",
            "SQL",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delimiter in _TABS:
            msgspec.structs.force_setattr(self, "delimiter", "\t")
        mark = self.delimiter
        if mark is not None and (
            len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in "\"\r\n\0 '.-+"
        ):
            raise ConfigError("the delimiter must be one character, such as ; or |, or \\t for a tab")
        if self.decimal not in (None, ".", ","):
            raise ConfigError("the decimal mark must be . or ,")
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.table_name is not None and self.query is not None:
            raise ConfigError("give the name of a table or a query, not both")

    @property
    def given(self) -> frozenset[str]:
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name) is not None)

    def declared(self, schema: Schema) -> Schema:
        """Return the schema with this decimal mark in number columns that declare none.

        >>> column = Number(name="pay", min=0.0, max=9.0)
        >>> ReadOptions(decimal=",").declared(Schema(columns=(column,))).columns[0].decimal
        ','
        """
        if self.decimal in (None, "."):
            return schema
        columns = [
            replace(c, decimal=",") if isinstance(c, Number) and c.decimal == "." and c.thousands != "," else c
            for c in schema.columns
        ]
        return replace(schema, columns=tuple(columns))


AS_USUAL = ReadOptions()


def _check_encoding(name: str) -> None:
    try:
        found = codecs.lookup(name).name
        known = b"a,1\n".decode(found.replace("utf-16", "latin-1").replace("utf-32", "latin-1")) == "a,1\n"
    except (LookupError, UnicodeError, ValueError):
        known, found = False, ""
    if not known or _STATEFUL.fullmatch(found):
        raise ConfigError("the encoding is not one that can be read; give its usual name, such as utf-8 or cp1252")

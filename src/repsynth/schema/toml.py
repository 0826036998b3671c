"""`schema.toml` to a Schema and back, with all mistakes reported at once."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

from repsynth.errors import SchemaError, has_controls, printable, shown
from repsynth.schema.column_tables import read_column
from repsynth.schema.columns import (
    Category,
    Column,
    Measured,
    Numeric,
    Person,
    Schema,
)
from repsynth.schema.made import FAMILIES
from repsynth.schema.mistakes import Report, did_you_mean
from repsynth.schema.rules import read_rules, rules_to_list

_TOP = ("columns", "label", "confirmed", "measured", "rules", "person", "one_row_per_person")
_CONTROLS = "a control character, such as a line end or a tab; take it out, in the data, too"
_MOST_MU = 1e6
_MOST_ROWS = 1000
_MOST_BYTES = 8 * 2**20
_MANY_PARTS = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")


def load_schema(path: str | Path) -> Schema:
    """Read and check a schema file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "schema.toml"
    >>> _ = path.write_text('[columns.smoker]\\ntype = "boolean"\\n')
    >>> load_schema(path).columns
    (Boolean(name='smoker', missing=False, storage=None),)
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SchemaError([f"{path.name}: larger than 8 MB; is this a schema file?"])
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SchemaError([f"{path.name}: not UTF-8 text; save the schema as UTF-8"]) from None
    except OSError as error:
        raise SchemaError([f"{shown(path)}: cannot be read ({error.strerror}); check the path"]) from None
    return parse_schema(text, file=path.name)


def parse_schema(text: str, *, file: str = "schema.toml") -> Schema:
    """Check the text of a schema file.

    >>> schema = parse_schema('''
    ... label = "smoker"
    ... [columns.age]
    ... type = "integer"
    ... min = 17
    ... max = 90
    ... [columns.smoker]
    ... type = "boolean"
    ... ''')
    >>> schema.label, schema.columns[0].max
    ('smoker', 90)
    """
    try:
        raw = read_toml(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        detail = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "too deep or malformed"
        raise SchemaError([f"{file}: not valid TOML: {detail}"]) from None
    lines = _Lines(text)

    def where(column: str | None, key: str | None) -> str:
        line = lines.find(column, key)
        return f"{file}, line {line}" if line else file

    return schema_from_dict(raw, where=where)


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML; a ValueError where a key has very many parts, which take memory as the square of their number.

    >>> read_toml("a.b = 1")
    {'a': {'b': 1}}
    """
    if _MANY_PARTS.search(text):
        raise ValueError
    return tomllib.loads(text)


def schema_from_dict(
    raw: dict[str, Any], *, where: Callable[[str | None, str | None], str] = lambda column, key: "schema"
) -> Schema:
    """Check a schema given as nested dictionaries, as TOML or JSON has them."""
    problems: list[str] = []

    def report(column: str | None, key: str | None, message: str) -> None:
        subject = f"column '{column}': " if column is not None else ""
        problem = f"{where(column, key)}: {subject}{message}"
        problems.append(printable(problem).encode("utf-8", errors="backslashreplace").decode("utf-8"))

    for key in raw.keys() - set(_TOP):
        report(None, key, f"unknown key '{key}'{did_you_mean(key, _TOP)}")
    confirmed = raw.get("confirmed", True)
    if not isinstance(confirmed, bool):
        report(None, "confirmed", "'confirmed' must be true or false")
    tables = raw.get("columns", {})
    if not isinstance(tables, dict) or not tables:
        report(None, "columns", "no columns; add a table [columns.NAME] for each column of the data")
        tables = {}
    for name, table in tables.items():
        if has_controls(name, table):
            report(name, None, f"its name or a value has {_CONTROLS}")
    if has_controls({key: value for key, value in raw.items() if key != "columns"}):
        report(None, None, f"a name or a value has {_CONTROLS}")
    columns = [read_column(name, table, report) for name, table in tables.items()]
    schema = Schema(
        columns=tuple(column for column in columns if column is not None),
        label=_label(raw.get("label"), tables, report),
        confirmed=confirmed is True,
        measured=_measured(raw.get("measured"), tables, report),
        person=_person(raw.get("person"), tables, report),
        one_row_per_person=_one_row_per_person(raw, report),
    )
    if schema.person is not None and schema.measured is not None:
        report(
            None,
            "person",
            "[measured] was paid for row by row, so it cannot be charged to persons; write bounds and values down "
            "from public knowledge, not the measured ones, or leave [person] out",
        )
    if not problems and "rules" in raw:
        schema = read_rules(raw["rules"], schema, lambda problem: report(None, "rules", problem))
    if not problems and not schema.features:
        report(None, "columns", "nothing to learn; declare at least one column besides the label and ids")
    if problems:
        raise SchemaError(problems)
    return schema


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """The nested dictionaries that `schema_from_dict` reads; JSON can hold them.

    >>> schema = parse_schema("columns.age = {type = 'integer', min = 17, max = 90}")
    >>> schema_from_dict(schema_to_dict(schema)) == schema
    True
    """
    result: dict[str, Any] = {} if schema.label is None else {"label": schema.label}
    result["columns"] = {column.name: _column_to_dict(column) for column in schema.columns}
    if schema.one_row_per_person:
        result["one_row_per_person"] = True
    if schema.person is not None:
        result["person"] = {"column": schema.person.column, "rows": schema.person.rows}
    if schema.rules:
        result["rules"] = rules_to_list(schema)
    if schema.measured is not None:
        measured = schema.measured
        result["measured"] = {
            "mu": measured.mu,
            "failure": measured.failure,
            "mark": measured.mark,
            "columns": list(measured.columns),
        }
    return result


def _column_to_dict(column: Column) -> dict[str, Any]:
    table: dict[str, Any] = {"type": type(column).__name__.lower()}
    if isinstance(column, Numeric):
        bounds = (column.min, column.max)
        table["min"], table["max"] = (b.isoformat() if isinstance(b, date) else b for b in bounds)
    if isinstance(column, Category):
        table["values"] = list(column.values)
    for field in fields(column):
        value = getattr(column, field.name)
        if field.name not in ("name", "min", "max", "values") and value != field.default:
            table[field.name] = list(value) if isinstance(value, tuple) else value
    if isinstance(column, Category) and column.parent:
        table["parent"] = dict(column.parent)
    return table


def _label(label: Any, tables: dict[str, Any], report: Report) -> str | None:
    if label is None:
        return None
    if not isinstance(label, str) or label not in tables:
        report(None, "label", f"the label {label!r} is not one of the columns{did_you_mean(label, tables)}")
        return None
    table = tables[label]
    if not isinstance(table, dict):
        return None
    if table.get("type") not in ("category", "boolean"):
        report(label, "type", "the label must be a category or boolean; list its classes as 'values'")
    if table.get("missing") is True:
        report(label, "missing", "the label cannot be missing; add its missing marker to 'values' instead")
    if any(key in table for key in FAMILIES):
        report(label, None, "a label's values are learned one by one; leave out " + ", ".join(FAMILIES))
    values = table.get("values")
    if table.get("type") == "category" and isinstance(values, list) and len(values) < 2:
        report(label, "values", "a label needs at least two values")
    return label


def _person(table: Any, tables: dict[str, Any], report: Report) -> Person | None:
    if table is None:
        return None
    if not isinstance(table, dict) or "column" not in table or table.keys() - {"column", "rows"}:
        report(None, "person", "[person] must have a 'column', the ids of people, and may have 'rows'")
        return None
    column, rows = table["column"], table.get("rows", 1)
    if not isinstance(column, str) or column not in tables:
        report(
            None,
            "person",
            f"the person column {column!r} is not declared{did_you_mean(column, tables)}; "
            'declare it with type = "id"',
        )
        return None
    if isinstance(tables[column], dict) and tables[column].get("type") != "id":
        report(column, "type", 'the person column must have type = "id": it is never learned')
        return None
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= _MOST_ROWS:
        report(
            None,
            "person",
            f"'rows' in [person] must be a whole number from 1 to {_MOST_ROWS:,}: how many rows of a person count",
        )
        return None
    return Person(column=column, rows=rows)


def _one_row_per_person(raw: dict[str, Any], report: Report) -> bool:
    key = "one_row_per_person"
    declared = raw.get(key)
    if declared is not None and not isinstance(declared, bool):
        report(None, key, f"'{key}' must be true or false")
    elif declared is True and "person" in raw:
        report(None, key, f"'{key}' contradicts [person]; keep the one that is true of the table")
    elif declared is False and "person" not in raw:
        report(None, key, f"'{key} = false' needs [person], which names the column that identifies people")
    return declared is True


def _measured(table: Any, tables: dict[str, Any], report: Report) -> Measured | None:
    """What it cost to measure a schema: to be left as the tool wrote it."""
    if table is None:
        return None
    keys = {"mu", "failure", "mark", "columns"}
    if not isinstance(table, dict) or table.keys() != keys:
        report(None, "measured", f"[measured] must have {', '.join(sorted(keys))}, as `schema --private` wrote it")
        return None
    numbers = [table["mu"], table["failure"]]
    real = all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    if not real or not (0 < numbers[0] <= _MOST_MU and 0 <= numbers[1] < 1):
        report(None, "measured", "[measured] has a mu or a failure that is out of range; restore what was written")
        return None
    mark = table["mark"]
    if not isinstance(mark, str) or not re.fullmatch("[0-9a-f]{32}", mark):
        report(None, "measured", "[measured] has a mark of another form; restore what was written")
        return None
    names = table["columns"]
    if not isinstance(names, list) or not all(isinstance(name, str) and name in tables for name in names):
        report(None, "measured", "[measured] names columns that there are not; restore what was written")
        return None
    return Measured(mu=float(numbers[0]), failure=float(numbers[1]), mark=mark, columns=tuple(names))


class _Lines:
    """Finds the line on which a column's table or one of its keys stands; tomllib does not tell."""

    _HEADER = re.compile(r"""^\s*\[\s*columns\s*\.\s*(?:"([^"]*)"|'([^']*)'|([^\]]*?))\s*\]""")
    _KEY = re.compile(r"""^\s*["']?([A-Za-z_][\w-]*)["']?\s*=""")

    def __init__(self, text: str) -> None:
        self._found: dict[tuple[str | None, str | None], int] = {}
        column: str | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            if header := self._HEADER.match(line):
                column = next(group for group in header.groups() if group is not None)
                self._found.setdefault((column, None), number)
            elif key := self._KEY.match(line):
                self._found.setdefault((column, key[1]), number)

    def find(self, column: str | None, key: str | None) -> int | None:
        return self._found.get((column, key)) or self._found.get((column, None))

"""Parse `schema.toml` and write it. All mistakes are reported at once, each with its line and its remedy."""

import difflib
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from repsynth.errors import SchemaError, has_controls, printable, shown
from repsynth.schema.columns import (
    Boolean,
    Category,
    Column,
    Datetime,
    Id,
    Integer,
    Measured,
    Number,
    Numeric,
    Person,
    Schema,
    as_datetime,
    exactly,
    plain_number,
)
from repsynth.schema.formats import ARROW_TYPES, FAKES, DateFormat, IdFormat, holds
from repsynth.schema.rules import read_rules, rules_to_list

_TOP = ("columns", "label", "confirmed", "measured", "rules", "person", "one_row_per_person")
_FAMILIES = ("prefix", "parent", "rarest")
"""Keys that declare the families of a category's values; at most one is allowed."""
_BOUNDED = {"type", "storage", "min", "max", "missing", "special"}
_KEYS = {
    "integer": _BOUNDED | {"step", "thousands", "prefix"},
    "number": _BOUNDED | {"step", "decimals", "thousands", "decimal", "prefix"},
    "category": {"type", "storage", "values", "missing", *_FAMILIES},
    "boolean": {"type", "storage", "missing"},
    "datetime": _BOUNDED | {"dates"},
    "id": {"type", "storage", "format", "fake", "locale"},
    "drop": {"type"},
}
_CONTROLS = "a control character, such as a line end or a tab; take it out, in the data, too"
_NOT_UTF8 = "not valid UTF-8: a character in it is incomplete; write it again"
_LARGEST_INTEGER = 2**52  # positions stay exact in float64
_MOST_CATEGORIES, _MOST_SPECIAL, _MOST_DECIMALS, _LONGEST_DATES = 100_000, 1000, 12, 32
_MOST_MU, _MOST_ROWS, _MOST_BYTES = 1e6, 1000, 8 * 2**20
_THOUSANDS = (",", ".", "'", "’", " ", "_", "\u00a0", "\u202f")
_PREFIX = re.compile(r"|(?=.{0,31}[^\s.,'’_])(?!\s)[^0-9+\x00-\x1f-]{1,32}")  # cannot be part of a number
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: the only text that UTF-8 cannot hold
_MANY_PARTS = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")

Report = Callable[[str | None, str | None, str], None]
"""Report a mistake: its column, its key, and what is wrong."""


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
    lines = _lines(text)

    def where(column: str | None, key: str | None) -> str:
        line = lines.get((column, key)) or lines.get((column, None))
        return f"{file}, line {line}" if line else file

    return schema_from_dict(raw, where=where)


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Refuse keys with many parts (ValueError): their memory is quadratic in the number of parts.

    >>> read_toml("a.b = 1")
    {'a': {'b': 1}}
    """
    if _MANY_PARTS.search(text):
        raise ValueError
    return tomllib.loads(text)


def schema_from_dict(
    raw: dict[str, Any], *, where: Callable[[str | None, str | None], str] = lambda column, key: "schema"
) -> Schema:
    """Check a schema given as nested dictionaries."""
    problems: list[str] = []

    def report(column: str | None, key: str | None, message: str) -> None:
        subject = f"column '{column}': " if column is not None else ""
        problem = f"{where(column, key)}: {subject}{message}"
        problems.append(printable(problem).encode("utf-8", errors="backslashreplace").decode("utf-8"))

    for key in raw.keys() - set(_TOP):
        report(None, key, f"unknown key '{key}'{_did_you_mean(key, _TOP)}")
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
    columns = [_ColumnTable(name, table, report).read() for name, table in tables.items()]
    schema = Schema(
        columns=tuple(column for column in columns if column is not None),
        label=_label(raw.get("label"), tables, report),
        confirmed=confirmed is True,
        measured=_measured(raw.get("measured"), tables, report),
        person=_person(raw.get("person"), tables, report),
        one_row_per_person=_one_row_per_person(raw, report),
        dropped=tuple(n for n, table in tables.items() if isinstance(table, dict) and table.get("type") == "drop"),
    )
    if schema.person is not None and schema.measured is not None:
        remedy = "write bounds and values down from public knowledge, or leave [person] out"
        report(None, "person", f"[measured] protects single rows, so it cannot be charged to persons; {remedy}")
    if not problems and "rules" in raw:
        schema = read_rules(raw["rules"], schema, lambda problem: report(None, "rules", problem))
    if not problems and not schema.features:
        report(None, "columns", "nothing to learn; declare at least one column besides the label and ids")
    if problems:
        raise SchemaError(problems)
    return schema


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return the nested dictionaries that `schema_from_dict` reads; JSON can hold them.

    >>> schema = parse_schema("columns.age = {type = 'integer', min = 17, max = 90}")
    >>> schema_from_dict(schema_to_dict(schema)) == schema
    True
    """
    result: dict[str, Any] = {} if schema.label is None else {"label": schema.label}
    result["columns"] = {column.name: _column_to_dict(column) for column in schema.columns}
    result["columns"] |= {name: {"type": "drop"} for name in schema.dropped}
    if schema.one_row_per_person:
        result["one_row_per_person"] = True
    if schema.person is not None:
        result["person"] = {"column": schema.person.column, "rows": schema.person.rows}
    if schema.rules:
        result["rules"] = rules_to_list(schema)
    if (measured := schema.measured) is not None:
        result["measured"] = vars(measured) | {"columns": list(measured.columns)}
    return result


def _column_to_dict(column: Column) -> dict[str, Any]:
    table: dict[str, Any] = {"type": type(column).__name__.lower()}
    for field in fields(column):
        value = getattr(column, field.name)
        if field.name != "name" and value != field.default:
            value = value.isoformat() if isinstance(value, date) else value
            table[field.name] = list(value) if isinstance(value, tuple) else value
    if isinstance(column, Category) and column.parent:
        table["parent"] = dict(column.parent)
    if markers := table.pop("markers", None):
        table["missing"] = markers
    return table


def _label(label: Any, tables: dict[str, Any], report: Report) -> str | None:
    if label is None:
        return None
    if not isinstance(label, str) or label not in tables:
        report(None, "label", f"the label {label!r} is not one of the columns{_did_you_mean(label, tables)}")
        return None
    table = tables[label]
    if not isinstance(table, dict):
        return None
    if table.get("type") not in ("category", "boolean"):
        report(label, "type", "the label must be a category or boolean; list its classes as 'values'")
    if table.get("missing"):
        report(label, "missing", "the label cannot be missing; add its missing marker to 'values' instead")
    if any(key in table for key in _FAMILIES):
        report(label, None, "a label's values are learned one by one; leave out " + ", ".join(_FAMILIES))
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
        said = f"the person column {column!r} is not declared{_did_you_mean(column, tables)}"
        report(None, "person", f'{said}; declare it with type = "id"')
    elif isinstance(tables[column], dict) and tables[column].get("type") != "id":
        report(column, "type", 'the person column must have type = "id": it is never learned')
    elif not _is_whole(rows, 1, _MOST_ROWS):
        wanted = f"a whole number from 1 to {_MOST_ROWS:,}: how many rows of a person count"
        report(None, "person", f"'rows' in [person] must be {wanted}")
    else:
        return Person(column=column, rows=rows)
    return None


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
    """Check the cost of a measured schema, which the tool wrote."""
    match table:
        case None:
            return None
        case {"mu": int() | float() as mu, "failure": int() | float() as failure, "mark": str() as mark,
              "columns": list() as names, **more} if not more:  # fmt: skip
            plain = not isinstance(mu, bool) and not isinstance(failure, bool)
            within = 0 < mu <= _MOST_MU and 0 <= failure < 1
            known = all(isinstance(name, str) and name in tables for name in names)
            if plain and within and known and re.fullmatch("[0-9a-f]{32}", mark):
                return Measured(mu=float(mu), failure=float(failure), mark=mark, columns=tuple(names))
    report(None, "measured", "[measured] is not as `schema --private` wrote it; restore what was written")
    return None


class _ColumnTable:
    """One table `[columns.NAME]`. `read` returns its column, or None if it is left out or has mistakes."""

    def __init__(self, name: str, table: Any, report: Report) -> None:
        self.name, self.table, self._report = name, table, report
        self.sound = True

    def wrong(self, key: str | None, message: str) -> None:
        self.sound = False
        self._report(self.name, key, message)

    def read(self) -> Column | None:
        if not isinstance(self.table, dict):
            self.wrong(None, f"must be a table; write [columns.{self.name}] and its keys below it")
            return None
        kind = self.table.get("type")
        if not isinstance(kind, str) or kind not in _KEYS:
            said = "no type" if kind is None else f"unknown type {kind!r}"
            hint = _did_you_mean(kind, _KEYS) if isinstance(kind, str) else ""
            self.wrong("type", f"{said}{hint}; use one of {', '.join(_KEYS)}")
            return None
        self._check_keys(kind)
        if not self.sound or kind == "drop":
            return None
        column = {"category": self._category, "boolean": self._boolean, "id": self._id}.get(kind, self._bounded)()
        storage = self.table.get("storage")
        if not self.sound or column is None or storage is None:
            return column if self.sound else None
        if storage not in ARROW_TYPES:
            hint = _did_you_mean(storage, ARROW_TYPES)
            self.wrong("storage", f"'storage' must be one of {', '.join(ARROW_TYPES)}{hint}")
        elif not holds(storage, column):
            remedy = "use another 'storage', or leave it out"
            self.wrong("storage", f"{storage} cannot hold every declared value as it is written; {remedy}")
        return replace(column, storage=storage) if self.sound else None

    def _check_keys(self, kind: str) -> None:
        if not _is_utf8(self.name):
            self.wrong(None, f"the name is {_NOT_UTF8}")
        for key in self.table.keys() - _KEYS[kind]:
            self.wrong(key, f"unknown key '{key}' for type {kind}{_did_you_mean(key, _KEYS[kind])}")
        for key in _KEYS[kind]:
            if not _is_utf8(self.table.get(key)):
                self.wrong(key, f"'{key}' is {_NOT_UTF8}")
        missing = self.table.get("missing", False)
        if isinstance(missing, list) and kind != "boolean":
            self._check_markers(missing)
        elif not isinstance(missing, bool):
            self.wrong("missing", "'missing' must be true or false, or a list of texts such as [\"?\"]")

    def _check_markers(self, markers: list[Any]) -> None:
        """Refuse markers of missing cells that are also values."""
        values = [self.table.get(key, []) for key in ("values", "special")]
        declared = {str(value).strip() for each in values if isinstance(each, list) for value in each}
        if not markers or not all(isinstance(marker, str) and marker.strip() for marker in markers):
            self.wrong("missing", "'missing' must be true or false, or a list of texts such as [\"?\"]")
        elif not declared.isdisjoint(marker.strip() for marker in markers):
            self.wrong("missing", "a text in 'missing' is declared as a value, too; keep one of them")
        elif self.table["type"] != "category" and any(re.match(r"[+-]?[.,]?[0-9]", m.strip()) for m in markers):
            self.wrong("missing", "a text in 'missing' starts with a digit; declare such codes as 'special'")

    def _missing(self) -> dict[str, Any]:
        missing = self.table.get("missing", False)
        if isinstance(missing, list):
            return {"missing": True, "markers": tuple(marker.strip() for marker in missing)}
        return {"missing": missing}

    def _boolean(self) -> Boolean:
        return Boolean(name=self.name, missing=self.table.get("missing", False))

    def _category(self) -> Category | None:
        values = self.table.get("values")
        if not isinstance(values, list) or not values:
            self.wrong("values", "a category needs its list of 'values'")
        elif len(values) > _MOST_CATEGORIES:
            self.wrong("values", f"more than {_MOST_CATEGORIES:,} values; group the rare ones or use type 'id'")
        elif any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
            self.wrong("values", "values must be text or whole numbers; put the others in quotes")
        else:
            texts = tuple(str(value).strip() for value in values)
            if twice := len(texts) - len(set(texts)):
                self.wrong("values", f'{twice} value(s) listed twice (1 and "1" are the same); keep one of each')
            else:
                return self._with_families(Category(name=self.name, values=texts, **self._missing()))
        return None

    def _with_families(self, column: Category) -> Category:
        given = [key for key in _FAMILIES if key in self.table]
        if not given:
            return column
        key, problem = given[0], ""
        asked = self.table[key]
        if len(given) > 1:
            problem = f"'{given[0]}' and '{given[1]}' exclude each other; keep one of them"
        elif key == "prefix" and not _is_whole(asked, 1, 99):
            problem = "'prefix' must be how many characters of a value name its family, for example prefix = 3"
        elif key == "rarest" and asked != "together":
            problem = "'rarest' can only be \"together\""
        elif key == "parent":
            of = {str(value).strip(): parent for value, parent in asked.items()} if isinstance(asked, dict) else {}
            if of.keys() != set(column.values) or not all(isinstance(each, str) for each in of.values()):
                problem = "'parent' must be a table that has one entry for each value, and no other: its family"
            asked = tuple(of.items())
        if not problem:
            column = replace(column, **{key: asked})
            if column.size > 1 and len(set(column.families or ())) == column.size:
                problem = f"'{key}' makes a family of every value; make it coarser, or leave it out"
        if problem:
            self.wrong(key, problem)
        return column

    def _id(self) -> Id:
        form, fake, locale = (self.table.get(key) for key in ("format", "fake", "locale"))
        if form is not None and fake is not None:
            self.wrong("fake", "'format' and 'fake' exclude each other; keep one of them")
        if form is not None and not isinstance(form, str):
            self.wrong("format", "'format' must be text, for example format = \"###-##-####\"")
        elif form is not None and (problem := IdFormat(form).problem):
            self.wrong("format", f"'format' cannot be used: {problem}")
        if fake is not None and fake not in FAKES:
            self.wrong("fake", f"'fake' must be one of {', '.join(FAKES)}{_did_you_mean(fake, FAKES)}")
        if locale is not None and not (isinstance(locale, str) and re.fullmatch("[a-z]{2,3}_[A-Z]{2}", locale)):
            self.wrong("locale", "'locale' must be a language and a country, for example locale = \"de_DE\"")
        elif locale is not None and fake is None:
            self.wrong("locale", "'locale' is for ids that are made up; add 'fake', or leave it out")
        return Id(name=self.name, format=form, fake=fake, locale=locale)

    def _bounded(self) -> Numeric | None:
        kind, special = self.table["type"], self._special()
        low, high = self._bounds()
        more: dict[str, Any] = {**self._missing(), "special": special}
        if kind == "datetime":
            more["dates"] = self._dates(low, high)
        else:
            more |= self._grid(low, high) | self._notation()
        if not self.sound:
            return None
        column: Numeric = {"integer": Integer, "number": Number, "datetime": Datetime}[kind](
            name=self.name, min=low, max=high, **more
        )
        if _is_all_special(column):
            remedy = "declare a category instead"
            self.wrong("special", f"every value from 'min' to 'max' is 'special'; {remedy}")
        return column

    def _bounds(self) -> tuple[Any, Any]:
        """Return the bounds; None if they are unusable."""
        kind = self.table["type"]
        parse: Callable[[Any], Any] = {"integer": _integer, "number": _number, "datetime": _datetime}[kind]
        example = {"integer": "17", "number": "0.5", "datetime": '"2020-01-31"'}[kind]
        limit = f" between -2^52 and 2^52 = {_LARGEST_INTEGER:,}" if kind == "integer" else ""
        low, high = (parse(self.table.get(key)) for key in ("min", "max"))
        for key, bound in (("min", low), ("max", high)):
            if bound is None:
                said = f"'{key}' is not a usable {kind}{limit}" if key in self.table else f"no '{key}'"
                self.wrong(key, f"{said}; give the public bound, for example {key} = {example}")
        if low is None or high is None:
            return None, None
        if isinstance(low, datetime) != isinstance(high, datetime):  # a date compared with a time means midnight
            low, high = as_datetime(low), as_datetime(high)
        if not low < high:
            self.wrong("min", "'min' must be below 'max'")
            return None, None
        if kind == "number" and not 1e-280 < high - low < 1e300:
            remedy = "rescale the column"
            self.wrong("min", f"'min' and 'max' are too close or too far apart for floating point; {remedy}")
            return None, None
        return low, high

    def _special(self) -> tuple[str, ...]:
        values = self.table.get("special", [])
        usable = (str, int, float, date) if self.table["type"] == "datetime" else (str, int, float)
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, usable) for v in values):
            self.wrong("special", "'special' must be a list of text or numbers, such as special = [-9, \"n/a\"]")
            return ()
        if len(values) > _MOST_SPECIAL:
            self.wrong("special", f"more than {_MOST_SPECIAL:,} special values; is this a category?")
            return ()
        if any(isinstance(v, int | float) and not abs(v) < 2**64 for v in values):
            self.wrong("special", "a special number is not below 2^64; put it in quotes to compare it as text")
            return ()
        texts = tuple(str(int(v) if isinstance(v, float) and v.is_integer() else v).strip() for v in values)
        if not all(texts):
            self.wrong("special", "a special value is empty; remove it, and declare 'missing' for empty cells")
        numbers = [plain_number(text) for text in texts]
        distinct = {text if number is None else number for text, number in zip(texts, numbers, strict=True)}
        if twice := len(texts) - len(distinct):
            self.wrong("special", f'{twice} special value(s) listed twice (-9 and "-9.0" are the same); keep one')
        return texts

    def _grid(self, low: Any, high: Any) -> dict[str, int | float]:
        """Return the step or the decimals between the bounds."""
        step, decimals = self.table.get("step"), self.table.get("decimals")
        if step is not None and decimals is not None:
            self.wrong("decimals", "'step' and 'decimals' exclude each other; keep one of them")
        elif decimals is not None:
            if _is_whole(decimals, 0, _MOST_DECIMALS):
                self._check_grid("decimals", low, high, float(f"1e-{decimals}"))
                return {"decimals": decimals}
            self.wrong("decimals", f"'decimals' must be a whole number from 0 to {_MOST_DECIMALS}")
        elif step is not None:
            whole = self.table["type"] == "integer"
            parsed: int | float | None = _integer(step) if whole else _number(step)
            if parsed is not None and parsed > 0:
                self._check_grid("step", low, high, parsed)
                return {"step": parsed}
            wanted = "a whole number" if whole else "a number"
            self.wrong("step", f"'step' must be {wanted} above 0: the distance between two values")
        return {}

    def _check_grid(self, key: str, low: float | None, high: float | None, unit: float) -> None:
        """Check that both bounds are on the grid and that float64 holds its values."""
        if low is None or high is None:
            return
        least, most, distance = exactly(low), exactly(high), exactly(unit)
        if max(abs(least), abs(most), most - least) > 2**52 * distance:
            self.wrong(key, f"'{key}' is too fine for these bounds: more than 2^52 values; make it coarser")
        elif key == "decimals" and any((bound / distance) % 1 for bound in (least, most)):
            self.wrong(key, "'min' or 'max' has more 'decimals' than declared; round it or declare more")
        elif (most - least) / distance % 1:
            remedy = "change a bound or the 'step'"
            self.wrong(key, f"the distance from 'min' to 'max' must be a whole number of steps; {remedy}")

    def _notation(self) -> dict[str, str]:
        """Return the notation of numbers: prefix, thousands separator and decimal mark."""
        given: dict[str, str] = {k: self.table[k] for k in ("prefix", "thousands", "decimal") if k in self.table}
        thousands, prefix = given.get("thousands", ""), given.get("prefix", "")
        decimal = given.get("decimal", "." if self.table["type"] == "number" else "")
        if thousands not in ("", *_THOUSANDS):
            self.wrong("thousands", "'thousands' must be one of , . ' _ and a space")
        if decimal not in ("", ",", ".") or given.get("decimal") == "":
            self.wrong("decimal", '\'decimal\' must be "," or "."')
        elif thousands and thousands == decimal:
            self.wrong("thousands", "'thousands' and 'decimal' must differ; declare the decimal mark, too")
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            self.wrong("prefix", "'prefix' must be a short text without digits and signs, for example \"$\"")
        return given

    def _dates(self, low: Any, high: Any) -> str | None:
        """Return the format of dates, which must distinguish all days between the bounds."""
        text = self.table.get("dates")
        if text is None:
            return None
        if not isinstance(text, str) or len(text) > _LONGEST_DATES or not text.isprintable():
            self.wrong("dates", "'dates' must be a format, for example dates = \"%d.%m.%Y\"")
            return None
        form = DateFormat(text.strip())
        if form.problem:
            self.wrong("dates", f"'dates' cannot be used: {form.problem}")
        elif low is not None:
            times = (low + (high - low) * i / 40 for i in range(41))
            days = [datetime(time.year, time.month, time.day) for time in times]
            if isinstance(low, datetime) and "%H" not in form.text:
                self.wrong("dates", "'dates' has no time of day, but the bounds do; add %H:%M, or use dates there")
            elif any(form.read(form.write(day)) != day for day in days):
                self.wrong(
                    "dates", "'dates' writes two days between the bounds in the same way; use %Y for the year"
                )
        return form.text


def _is_all_special(column: Numeric) -> bool:
    """Return whether every value of the grid would be read as a special one."""
    if column.steps >= len(column.special):
        return False
    places = range(column.steps + 1)
    if isinstance(column, Datetime):
        form = DateFormat(column.dates) if column.dates else None
        times = {(form and form.read(text)) or _datetime(text) for text in column.special}
        return {column.start + place * column.unit for place in places} <= {as_datetime(t) for t in times if t}
    least, distance = exactly(column.min), exactly(column.unit)
    numbers = {exactly(n) for n in map(plain_number, column.special) if n is not None}
    return {least + place * distance for place in places} <= numbers


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _integer(value: Any) -> int | None:
    return value if _is_whole(value, -_LARGEST_INTEGER, _LARGEST_INTEGER) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _datetime(value: Any) -> date | None:
    """Return a date, or a time in UTC without a zone, from a TOML date or from ISO text."""
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        except OverflowError:  # before the first or after the last year in UTC
            return None
    return value if isinstance(value, date) else None


def _is_utf8(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_utf8, value))
    return not isinstance(value, str) or _SURROGATE.search(value) is None


def _did_you_mean(word: Any, words: Any) -> str:
    """Suggest a similar word.

    >>> _did_you_mean("intger", ("integer", "number")), _did_you_mean("x", ("integer",))
    (" (did you mean 'integer'?)", '')
    """
    close = difflib.get_close_matches(str(word), list(words), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


_HEADER = re.compile(r"""^\s*\[\s*columns\s*\.\s*(?:"([^"]*)"|'([^']*)'|([^\]]*?))\s*\]""")
_KEY = re.compile(r"""^\s*["']?([A-Za-z_][\w-]*)["']?\s*=""")


def _lines(text: str) -> dict[tuple[str | None, str | None], int]:
    """Return the line of each column's table and of each key, which tomllib does not report."""
    found: dict[tuple[str | None, str | None], int] = {}
    column: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            column = next(group for group in header.groups() if group is not None)
            found.setdefault((column, None), number)
        elif key := _KEY.match(line):
            found.setdefault((column, key[1]), number)
    return found

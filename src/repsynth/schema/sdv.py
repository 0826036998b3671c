"""Read and write metadata of SDV, the Synthetic Data Vault: JSON of a single table (SINGLE_TABLE_V1, or V1).

SDV metadata has types, but neither bounds nor categories. A draft takes the types from it and reads or measures
the rest. Parts of a schema that SDV does not have are not written.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repsynth.errors import ConfigError, has_controls, shown
from repsynth.schema.columns import Boolean, Category, Column, Datetime, Id, Integer, Number, Schema
from repsynth.schema.formats import FAKES, SYMBOLS, IdFormat, escaped

_KINDS = {"categorical": "category", "boolean": "boolean", "numerical": "number", "datetime": "datetime"}
_CLASSES = {"[0-9]": "#", r"\d": "#", "[1-9]": "%", "[A-Z]": "?", "[a-z]": "*", "[0-9a-f]": "^", "[a-f0-9]": "^"}
"""The character classes of the symbols in a format."""

_PART = re.compile(r"(\[[^\]]*\]|\\.|[^\\\[\](){}.*+?|^$])(?:\{(\d{1,2})\})?", re.DOTALL)
_ISO = {True: "%Y-%m-%d", False: "%Y-%m-%dT%H:%M:%S"}
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Described:
    """The type of a column, None if unknown, and the format of an id."""

    kind: str | None
    format: str | None = None
    fake: str | None = None


def load_sdv(path: str | Path) -> dict[str, Described]:
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{shown(path)}: larger than 64 MB; is this SDV's metadata?")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{shown(path)}: not valid JSON; save it with SDV's metadata.save_to_json") from None
    try:
        return from_sdv(raw)
    except ConfigError as error:
        raise ConfigError(f"{shown(path)}: {error}") from None


def from_sdv(raw: Any) -> dict[str, Described]:
    """Return the types of the columns in SDV metadata.

    >>> from_sdv({"columns": {"user": {"sdtype": "id", "regex_format": "U_[0-9]{3}"}}})
    {'user': Described(kind='id', format='U_###', fake=None)}
    """
    raw = raw if isinstance(raw, dict) else {}
    if isinstance(tables := raw.get("tables"), dict):
        if len(tables) != 1:
            raise ConfigError(f"it describes {len(tables)} tables; save the metadata of a single table")
        raw = next(iter(tables.values()))
    columns = raw.get("columns") if isinstance(raw, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(each, dict) for each in columns.values()):
        raise ConfigError("no 'columns' with their 'sdtype'; is this SDV's metadata of a table?")
    if has_controls(columns):
        raise ConfigError("a name or a value has a control character; take it out")
    others = raw.get("alternate_keys")
    keys = {
        key for key in (raw.get("primary_key"), *(others if isinstance(others, list) else ())) if str(key) == key
    }
    return {name: _described(given, name in keys) for name, given in columns.items()}


def to_sdv(schema: Schema) -> dict[str, Any]:
    """Return a schema as SDV metadata, so that SDV can read or evaluate its synthetic tables.

    >>> schema = Schema(columns=(Id(name="user", format="U_###"), Integer(name="age", min=0, max=99)))
    >>> to_sdv(schema)["columns"]["user"]
    {'sdtype': 'id', 'regex_format': 'U_[0-9]{3}'}
    >>> to_sdv(schema)["primary_key"]
    'user'
    """
    keys = [column.name for column in schema.columns if isinstance(column, Id) and column.fake is None]
    key = {"primary_key": keys[0]} if keys else {}  # ids are unique in a synthetic table
    columns = {column.name: _metadata(column) for column in schema.columns}
    return {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", **key, "columns": columns}


def _described(given: dict[str, Any], key: bool) -> Described:
    sdtype, regex = given.get("sdtype"), given.get("regex_format")
    if not isinstance(sdtype, str):
        raise ConfigError("a column has no 'sdtype'; is this SDV's metadata of a table?")
    if sdtype in _KINDS and not key:
        return Described(_KINDS[sdtype])
    if sdtype == "unknown" and not key and given.get("pii") is not True:
        return Described(None)
    form = _format_of(regex) if isinstance(regex, str) else None
    return Described("id", form, sdtype if form is None and sdtype in FAKES else None)


def _format_of(regex: str) -> str | None:
    """Return the id format of a regular expression of fixed length; None for others."""
    place, form = 0, ""
    regex = regex.removeprefix("^").removesuffix("" if regex.endswith("\\$") else "$")
    while place < len(regex):
        found = _PART.match(regex, place)
        if found is None:
            return None
        part, times = found[1], int(found[2] or 1)
        if part not in _CLASSES and (part.startswith("[") or re.fullmatch(r"\\[A-Za-z0-9]", part)):
            return None
        form += (_CLASSES.get(part) or escaped(part.removeprefix("\\"))) * times
        place = found.end()
    return None if IdFormat(form).problem else form


def _regex_of(form: IdFormat) -> str:
    classes = {SYMBOLS[symbol]: name for name, symbol in reversed(_CLASSES.items())}
    runs: list[list[Any]] = []
    for characters, chosen in form.parts or ():
        part = classes[characters] if chosen else re.sub(r"[.^$*+?{}\[\]\\|()]", r"\\\g<0>", characters)
        if runs and runs[-1][0] == part:
            runs[-1][1] += 1
        else:
            runs.append([part, 1])
    return "".join(part if times == 1 else f"{part}{{{times}}}" for part, times in runs)


def _metadata(column: Column) -> dict[str, Any]:
    match column:
        case Category():
            return {"sdtype": "categorical"}
        case Boolean():
            return {"sdtype": "boolean"}
        case Integer():
            return {"sdtype": "numerical", "computer_representation": "Int64"}
        case Number():
            return {"sdtype": "numerical", "computer_representation": "Float"}
        case Datetime():
            return {"sdtype": "datetime", "datetime_format": column.dates or _ISO[column.unit.days == 1]}
        case Id(fake=str() as fake):
            return {"sdtype": fake, "pii": True}
        case Id(format=str() as form):
            return {"sdtype": "id", "regex_format": _regex_of(IdFormat(form))}
        case Id():
            return {"sdtype": "id"}

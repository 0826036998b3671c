"""Draft a schema by looking at the data: each column's type, with the reason. PRIVATE.

The draft asks for the unit of privacy first. The curator must confirm or replace every bound and category before
`synthesize` accepts it.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.profile import (
    Look,
    Read,
    numbers_of,
    percent,
    quoted,
    read_table,
    repeating,
    some,
    times_of,
)
from repsynth.errors import ConfigError, DataError
from repsynth.io.sources import open_source
from repsynth.schema.sdv import Described

Others = tuple[Bools, Bools, Bools]
MARK = "# read from the data, not private: confirm or replace"
_DECLARED = "# as the file declares them: confirm or replace"
_NUMBERED = "not learned: the synthetic table will have 1, 2, 3, ... in its place"
_WIDTH = 113

_FEW = 12
_SMALL = 100  # at most this many values are a category if each occurs twice on average
_FREQUENT = 10  # mean count of the values of a category
_MOST_VALUES, _MOST_CLASSES = 10_000, 1_000
_NEARLY_ALL, _NEARLY_CONSTANT = 0.9, 0.999
_LARGEST, _ENORMOUS = 2**52, 1e200
_MOST_DECIMALS = 6
_MOST_TEXT_CODES = 8
_FORMATS = {"thousands": "{} between thousands", "decimal": "{} before decimals"}
_FORMATS |= {"prefix": "{} before the number", "dates": "written {}"}
PERSONAL = {
    *("id", "ids", "uuid", "guid", "ssn", "email", "mail", "phone", "telephone", "telefon", "tel", "mobile"),
    *("iban", "mrn", "passport", "imei", "vin", "surname", "lastname", "nachname", "firstname", "vorname", "url"),
    *("fax", "forename", "fullname", "username", "login", "address", "street", "ip"),
}
"""Words in the names of columns that identify people."""
_NUMBERING = {"number", "num", "no", "nr", "nbr"}
_NAMED_CODES = {
    *("code", "codes", "zip", "zipcode", "postcode", "postal", "plz", "fips", "icd", "icd9", "icd10", "naics"),
    *("sic", "isco", "nace", "cpt", "atc", "ags", "nuts", "iso"),
}
_BLANKS = {
    *("na", "n/a", "#n/a", "nan", "null", "missing", "unknown", "-", "--", ".", "..", "?", "(null)", "<na>"),
    *("#null!", "#value!", "#ref!", "#name?", "#div/0!", "#num!"),
}
MARKERS = {"", "none", "nil", *_BLANKS}
"""Texts, in lower case, that tables write where there is no value. Of a category, "none" is a value."""
_CODES = re.compile(r"[A-Za-z]{1,4}[-. ]?\d+\S*|\d+[-. ]?[A-Za-z]{1,3}")


# --- the draft ---

_QUESTION = """\
# Can one person have several rows in this table? Answer first: remove one of the two "#" before the run.
# one_row_per_person = true       # no: every row is about a different person
# person = {{column = {column}}}      # yes: {what} identifies people; its type must be "id"
"""
_HEAD = """\

# This draft was written by looking at the data. Bounds and categories below are NOT private as they stand:
# an extreme value or a rare category may belong to one person. Replace them by what is publicly known, then set
# confirmed = true. Values out of bounds will be clipped, unknown categories will count as missing. To leave a
# column out, give it type = "drop" and nothing else.
confirmed = false"""


class Decision(msgspec.Struct, frozen=True):
    """What a column was taken for: its type, the lines of the schema below it, the reason, and what to look at.
    `person` says why it may identify persons."""

    name: str
    type: str
    reason: str
    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    person: str | None = None


class Draft(msgspec.Struct, frozen=True):
    """A draft: the text of the schema, and how each column was decided. PRIVATE: it quotes the data.
    `persons` are the columns that may identify persons, the likeliest first."""

    text: str
    rows: int
    warnings: tuple[str, ...]
    columns: tuple[Decision, ...]
    persons: tuple[str, ...] = ()


def make_draft(
    source: Any,
    *,
    label: str | None = None,
    decimal: str | None = None,
    described: Mapping[str, Described] | None = None,
) -> Draft:
    """Draft a schema. `decimal` is the decimal mark of numbers in text, `described` the metadata of columns.

    >>> print(make_draft(pa.table({"age": [30, 41, 52]})).text.splitlines()[-3])
    type = "integer"
    """
    opened = open_source(source)
    table, dropped = read_table(opened), opened.dropped()
    if not table.num_rows:
        raise DataError(f"{opened.place}: has no rows to draft a schema from; write it by hand")
    if label is not None and label not in table.column_names:
        raise DataError(f"the label {quoted(label)} is not one of the columns; check its spelling")
    known = check_described(described or {}, table.column_names)
    looks = [Look.of(name, table[name]) for name in table.column_names]
    columns = [
        decide(
            look,
            is_label=look.name == label,
            decimal=decimal,
            labels=opened.labels.get(look.name, {}),
            described=known.get(look.name),
        )
        for look in looks
    ]
    warnings = []
    if dropped:
        warnings.append(f"{some(dropped, 'row')} of the file with too many or too few cells: left out")
    if all(column.type in ("id", "drop") or column.name == label for column in columns):
        warnings.append("there is nothing to learn: every column is an id; make a category or a number of one")
    persons = sorted((c for c in columns if c.person), key=lambda c: not is_named(words_of(c.name), PERSONAL))
    head = _question(persons) + _HEAD
    return Draft(
        schema_text(head, columns, label, warnings),
        table.num_rows,
        tuple(warnings),
        tuple(columns),
        tuple(column.name for column in persons),
    )


def _question(persons: Sequence[Decision]) -> str:
    if not persons:
        return _QUESTION.format(column='"NAME"', what="NAME")
    name = quoted(persons[0].name)
    found = [f"{quoted(column.name)}: {column.person}" for column in persons[:3]]
    lines = _comment("", ["These columns repeat and may identify people:", *found])
    return _QUESTION.format(column=name, what=name) + "\n".join(lines) + "\n"


def check_described(described: Mapping[str, Described], names: Sequence[str]) -> Mapping[str, Described]:
    """Return the metadata. Refuse it if it describes columns that the table does not have."""
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
    no_label = '# label = "..."   # the column that analysts will predict'
    lines.append(f"label = {quoted(label)}" if label else no_label)
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
        for line in textwrap.wrap(mark + text, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
    ]


def value_lines(values: Iterable[str], mark: str = "") -> list[str]:
    """Return the list of values of a category, as many on a line as fit.

    >>> value_lines(["no", "yes"])
    ['values = ["no", "yes"]']
    """
    texts = [quoted(value) for value in values]
    short, after = f"values = [{', '.join(texts)}]", f"   {mark}" if mark else ""
    if len(short) + len(after) <= _WIDTH:
        return [short + after]
    lines, line = ["values = [" + after], " "
    for text in texts:
        if len(line) + len(text) > _WIDTH - 2:
            lines, line = [*lines, line], " "
        line += f" {text},"
    return [*lines, line, "]"]


# --- what a column is ---


def decide(
    look: Look,
    *,
    is_label: bool = False,
    decimal: str | None = None,
    labels: Mapping[str, str] | None = None,
    described: Described | None = None,
) -> Decision:
    """Decide what a column is. The decimal mark, labels of codes and metadata help if they are known.

    >>> decision = decide(Look.of("age", pa.chunked_array([["30", "41", "52", "N", "N", "N"] * 10])))
    >>> decision.type, decision.reason
    ('category', '4 different values: few whole numbers beside "N", taken for codes')
    """
    kind = None if described is None else described.kind
    if described is not None and kind == "id" and not is_label:
        keys = {"format": described.format, "fake": described.fake}
        lines = tuple(f"{key} = {quoted(text)}" for key, text in keys.items() if text)
        return Decision(look.name, "id", "an id by the metadata", () if lines else (_NUMBERED,), lines)
    if labels and set(look.texts) <= set(labels):
        return _labelled(look, labels)
    if not look.distinct and not is_label:
        return left_out(look.name, "every cell is empty")
    decision = _label(look) if is_label else _by_metadata(look, kind, decimal) or _any(look, decimal)
    warnings, fits = list(decision.warnings), {kind} | ({"integer"} if kind == "number" else set())
    if kind is not None and decision.type not in fits and not is_label:
        warnings.append(f"the metadata says {kind}, which its cells are not: taken for what they are")
    if look.distinct > 1 and (top := int(look.counts.max())) > _NEARLY_CONSTANT * look.rows:
        share = percent(top, look.rows)
        warnings.append(f'one value in {share} of the rows: the others stand out; better type = "drop"')
    return msgspec.structs.replace(decision, warnings=tuple(warnings))


def left_out(name: str, why: str, *warnings: str) -> Decision:
    return Decision(name, "drop", f"{why}: left out", warnings)


def not_learned(name: str, why: str, *warnings: str) -> Decision:
    return Decision(name, "id", why, (_NUMBERED, *warnings))


def _by_metadata(look: Look, kind: str | None, decimal: str | None) -> Decision | None:
    """Return what the metadata says, or None if it says nothing or the cells do not agree."""
    if kind == "category":
        return _category(look, "by the metadata", keep=True)
    if kind == "datetime" and (times := times_of(look)):
        return _as_date(look, times)
    if kind == "boolean" and {text.lower() for text in look.texts} <= {"true", "false"}:
        return Decision(look.name, "boolean", "true or false, by the metadata", (), tuple(_missing(look)))
    return _as_number(look, numbers_of(look, decimal)) if kind == "number" else None


def _labelled(look: Look, labels: Mapping[str, str]) -> Decision:
    """Return a category of the codes that the file labels."""
    lines = [f"values = [   {_DECLARED}", *(f"  {quoted(c)},   # {_plain(t)}" for c, t in labels.items()), "]"]
    reason = f"{some(len(labels), 'code')} with a label in the file"
    return Decision(look.name, "category", reason, (), (*lines, *_missing(look)))


def _plain(label: str) -> str:
    return quoted(" ".join(label.split()))[1:-1]


def _any(look: Look, decimal: str | None) -> Decision:
    if pa.types.is_boolean(look.values.type):
        return Decision(look.name, "boolean", "stored as true or false", (), tuple(_missing(look)))
    if look.distinct == 1 and look.cells == look.rows:
        return _category(look, 'the same in all rows: nothing to learn; better type = "drop"')
    if pa.types.is_dictionary(look.type) and look.distinct <= _MOST_VALUES:
        return _identifier(look, numbers_of(look, decimal)) or _category(look, "stored as a category", keep=True)
    times, read = times_of(look), numbers_of(look, decimal)
    as_date = _as_date(look, times) if times else None
    if as_date and times and (times.keys.get("dates") == "%Y%m%d" or not np.isfinite(read.numbers).any()):
        return as_date
    return _identifier(look, read) or _as_number(look, read) or as_date or _as_text(look)


# --- identifiers ---


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case: patient, id for patientId."""
    return re.findall(r"[^\W\d_]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def is_named(words: Sequence[str], known: Set[str]) -> bool:
    """Return whether a word, or two adjacent words joined, are known."""
    return not known.isdisjoint([*words, *(first + second for first, second in pairwise(words))])


def _identifier(look: Look, read: Read) -> Decision | None:
    """Return an id, if the name of the column says so or its values repeat as those of persons do."""
    finite = np.isfinite(read.numbers)
    named, like = _named_identifier(look, read), _like_persons(look, read)
    if np.any(read.numbers[finite] % 1) or not (named or like):
        return None
    small = look.distinct <= _SMALL and look.cells >= 2 * look.distinct
    if small:  # a few dozen values are codes, whatever their name
        return _category(look, "named like an identifier") if named and look.distinct > 2 else None
    if named and look.distinct <= _FEW:
        return None
    repeats = look.distinct < look.cells
    person = f"{look.distinct:,} values in {look.cells:,} rows, one of them in {int(look.counts.max()):,} rows"
    warnings = [repeating(look.name, look.distinct, look.cells, int(look.counts.max()))] if repeats else []
    if not named and look.cells >= 2 * _FREQUENT * look.distinct:  # many rows of each: codes, perhaps
        codes = _category(look, "may identify persons, or be codes", warnings=tuple(warnings))
        return msgspec.structs.replace(codes, person=person)
    warnings = [f"{text}; if it means something else, declare its type" for text in warnings]
    why = "named like an identifier" if named else "repeats over a wide range as the ids of persons do"
    decision = not_learned(look.name, why, *warnings)
    return msgspec.structs.replace(decision, person=person if repeats else None)


def _named_identifier(look: Look, read: Read) -> bool:
    words = words_of(look.name)
    while words and words[-1] in _NUMBERING:
        words.pop()
    if 2 * _mass(look, np.isfinite(read.numbers)) > look.cells:  # of numbers, the last word decides: phone calls
        return not PERSONAL.isdisjoint({*words[-1:], "".join(words[-2:])})
    return is_named(words, PERSONAL) or ("name" in words and look.distinct > look.rows / 20)


def _like_persons(look: Look, read: Read) -> bool:
    """Return whether values repeat more than chance allows, over a range much wider than the number of rows.

    Quantities differ from ids: they are heaped on multiples of ten, or most are small.
    """
    if look.distinct <= _SMALL or look.distinct == look.cells or look.counts.max() > look.cells / 20:
        return False
    finite = np.isfinite(read.numbers)
    if _mass(look, finite) >= _NEARLY_ALL * look.cells:
        numbers, counts = read.numbers[finite], look.counts[finite]
        low, middle, high = (float(np.quantile(numbers, part)) for part in (0, 0.5, 1))
        heaped = counts @ (numbers % 10 == 0) > 0.2 * counts.sum()
        middling = 0.15 <= (middle - low) / max(high - low, 1) <= 0.85
        whole = np.abs(numbers).max() <= _LARGEST and not np.any(numbers % 1)
        if heaped or not middling or not whole or _like_dates(numbers):
            return False
        room = high - low
    else:
        shapes = {re.sub("[a-z]", "a", re.sub("[0-9]", "0", text.lower())) for text in look.texts}
        if len(shapes) > 1 and look.cells >= _FREQUENT * look.distinct:
            return False  # ids have one form, and names repeat rarely
        middle = float(np.median([len(text) for text in look.texts]))
        long = (text for text in look.texts if len(text) >= middle)
        room = math.prod(float(len(set(signs))) for signs in zip(*long, strict=False))
    repeated = _mass(look, look.counts > 1) / look.cells
    return repeated >= 0.05 + 3 * look.cells / room


def _mass(look: Look, which: Bools) -> int:
    return int(look.counts[which].sum())


# --- cells among numbers that are not quantities, and numbers that are codes ---


def _others_among(look: Look, numbers: Floats) -> Others | None:
    """Return which values are markers of missing cells, codes, or odd. Return None if they are too many."""
    other = ~np.isfinite(numbers)
    markers, frequent = np.zeros_like(other), np.zeros_like(other)
    if look.is_text:
        places = np.flatnonzero(other)
        markers[places] = [look.texts[i].lower() in MARKERS for i in places]
        frequent = other & ~markers & (look.counts >= max(3, 0.001 * look.cells))
    odd = other & ~markers & ~frequent
    odd_cells = _mass(look, odd)
    if np.count_nonzero(frequent) > _MOST_TEXT_CODES or odd_cells > 0.1 * (odd_cells + _mass(look, ~other)):
        return None
    named = [i for i in np.flatnonzero(odd | frequent) if look.is_text and _CODES.fullmatch(look.texts[i])]
    if len(named) > _MOST_TEXT_CODES:  # V58, E880, ... beside 250.83
        return None
    return markers, frequent, odd


def sentinel_numbers(numbers: Floats, counts: Ints) -> list[int]:
    """Return numbers such as -9, 99 or 9999 that are far from the rest and frequent.

    >>> sentinel_numbers(np.array([*range(18, 80), 999.0]), np.append(np.full(62, 10), 40))
    [999]
    """
    values, places = np.unique(numbers, return_inverse=True)
    amounts = np.bincount(places, weights=counts)
    usual = np.array([not _is_round_code(value) for value in values], dtype=bool)
    if np.count_nonzero(usual) < 10:
        return []
    rest = values[usual]
    gaps = np.diff(rest)
    distance = np.maximum(rest.min() - values, values - rest.max())
    # Below zero, if all others are above it, a small distance is enough: -1 is not an age.
    near = (values < 0) & (rest.min() >= 0)
    least = np.where(near, np.median(gaps), max(2 * gaps.max(), 5 * np.median(gaps)))
    enough = np.maximum(max(5.0, 0.002 * amounts.sum()), 2 * np.median(amounts[usual]))
    return [int(value) for value in values[~usual & (amounts >= enough) & (distance >= least)]]


def _is_round_code(value: float) -> bool:
    """Return whether a value is -1 to -9, or one such as 77, 88, 96 to 99, 999, -99."""
    if value != np.rint(value) or abs(value) > 1e12:
        return False
    digits = str(abs(int(value)))
    if len(digits) == 1:
        return -9 <= value < 0
    return (len(set(digits)) == 1 and digits[0] in "789") or (set(digits[:-1]) == {"9"} and digits[-1] in "678")


def _why_codes(look: Look, numbers: Floats, counts: Ints) -> str | None:
    """Return why these numbers are codes, or None if nothing says so."""
    if look.is_text and _leading_zeros(look):
        return "some start with 0, which a number would lose: taken for codes"
    if not np.all(numbers == np.rint(numbers)):
        return None
    if is_named(words_of(look.name), _NAMED_CODES):
        return "named like a code: whole numbers taken for names, not for quantities"
    values = np.unique(numbers)
    if not 30 <= len(values) <= 1000 or not 0 < values[0] <= values[-1] < _LARGEST:
        return None
    low, middle, high = values[0], float(np.median(values)), values[-1]
    thin = (high - low) / np.gcd.reduce(values.astype(np.int64)) >= 10 * len(values)
    # Quantities get rarer towards large values and fill the space between; codes do neither.
    if thin and counts.sum() >= 20 * len(values) and 0.25 <= (middle - low) / (high - low) <= 0.75:
        return "whole numbers spread as codes are (do they count something? then an integer)"
    return None


def _leading_zeros(look: Look) -> bool:
    zero = np.array([len(text) > 1 and text.isdigit() and text[0] == "0" for text in look.texts], dtype=bool)
    same_width = len({len(text) for text in look.texts if text.isdigit()}) == 1
    return bool(_mass(look, zero) >= 0.01 * look.cells or (zero.any() and same_width))


# --- numbers and dates ---


def _as_number(look: Look, read: Read) -> Decision | None:
    """Return a number, if nearly all cells are one or one of a few codes."""
    finite = np.isfinite(read.numbers)
    if len(np.unique(read.numbers[finite])) <= 2 or np.abs(read.numbers[finite]).max() > _ENORMOUS:
        return None
    others = _others_among(look, read.numbers)
    if others is None:
        return _as_text(look, f"numbers mixed with texts such as {_example(look, ~finite)}")
    _, codes, _ = others
    if why := _why_codes(look, read.numbers[finite], look.counts[finite]):
        return _category(look, why)
    sentinels = sentinel_numbers(read.numbers[finite], look.counts[finite])
    numbers = np.unique(read.numbers[finite & ~np.isin(read.numbers, sentinels)])
    whole = bool(np.all(numbers == np.rint(numbers))) and float(np.abs(numbers).max()) <= _LARGEST
    if whole and codes.any() and len(numbers) <= 20 and _mass(look, finite) >= 3 * len(numbers):
        named = " and ".join(_quoted(look, codes))
        return _category(look, f"few whole numbers beside {named}, taken for codes")
    if whole and not sentinels and not codes.any() and (why := _numbered(look, numbers)):
        return not_learned(look.name, why)
    if numbers[-1] - numbers[0] < 1 / _ENORMOUS:
        return None
    return _number(look, read, others, sentinels, numbers, whole=whole)


def _number(
    look: Look, read: Read, others: Others, sentinels: list[int], numbers: Floats, *, whole: bool
) -> Decision:
    keys, warnings = dict(read.keys), list(read.warnings)
    by_comma = whole and keys.get("decimal") == ","
    if by_comma and "thousands" in keys:  # 1.234: no decimals at all
        del keys["decimal"]
    elif by_comma:  # 5,0
        whole = False
    bounds, grid = _grid(numbers, whole=whole, fewest=0 if whole else int(by_comma))
    shown = [f"{n:,.0f}" if n == np.rint(n) or abs(n) >= 1e5 else f"{n:,.6g}" for n in numbers[[0, -1]]]
    kind = f"{'whole ' if whole else ''}numbers from {shown[0]} to {shown[1]}"
    if whole and len(numbers) <= _FEW:
        kind = f"{len(numbers)} different {kind} (codes without an order? then a category)"
    if whole and not look.is_text and _like_dates(numbers):
        warnings.append("these look like dates (20200131) stored as numbers: store them as dates or as text")
    reason = "; ".join([kind, *_written(keys), *grid])
    what = "integer" if whole else "number"
    decision = Decision(look.name, what, reason, tuple(warnings), (*bounds, *_marked(keys)))
    return _with_others(decision, look, others, np.isin(read.numbers, sentinels), list(map(str, sentinels)))


def _grid(numbers: Floats, *, whole: bool, fewest: int) -> tuple[list[str], list[str]]:
    """Return the bounds and the common step or number of decimals, as lines and in words."""
    low, high = float(numbers[0]), float(numbers[-1])
    for decimals in range(fewest, 1 if whole else _MOST_DECIMALS + 1):
        scaled = np.rint(numbers * 10.0**decimals)
        if max(np.abs(scaled).max(), scaled[-1] - scaled[0]) > _LARGEST and not whole:
            break
        if np.array_equal(scaled / 10.0**decimals, numbers):
            common = int(np.gcd.reduce(np.abs(scaled).astype(np.int64))) if len(numbers) > 5 and not fewest else 1
            unit = max(step for k in range(16) for step in (10**k, 5 * 10**k) if step == 1 or common % step == 0)
            bounds = {"min": f"{low:.{decimals}f}", "max": f"{high:.{decimals}f}"}
            if unit > 1:
                step = f"{unit * 10.0**-decimals:.{decimals}f}"
                return _marked(bounds | {"step": step}), [f"all multiples of {step}"]
            if whole:
                return _marked(bounds), []
            return _marked(bounds | {"decimals": decimals}), [f"at most {some(decimals, 'decimal')}"]
    return _marked({"min": repr(low), "max": repr(high)}), []


def _numbered(look: Look, numbers: Floats) -> str | None:
    """Return why whole numbers that are all different are identifiers."""
    if not len(numbers) == look.cells > _FEW:
        return None
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return "every whole number in a row occurs once: a running number"
    shortest, longest = len(str(int(numbers[0]))), len(str(int(numbers[-1])))
    if shortest == longest >= 8 and numbers[0] > 0 and not _like_dates(numbers):
        return f"all different, of {longest} digits each: an identifier"
    return None


def _like_dates(numbers: Floats) -> bool:
    """Return whether whole numbers read as 20200131 does."""
    days, months = numbers % 100, numbers // 100 % 100
    inside = (numbers >= 1900_01_01) & (numbers < 2100_01_01) & (days >= 1) & (days <= 31) & (months >= 1)
    return bool(np.all(inside & (months <= 12)))


def _as_date(look: Look, read: Read) -> Decision | None:
    """Return a time, if nearly all cells are one or one of a few codes."""
    finite = np.isfinite(read.numbers)
    others = _others_among(look, read.numbers)
    if others is None or not finite.any():
        return None
    seconds = np.unique(read.numbers[finite])
    if len(seconds) <= 1:
        return None
    whole_days = bool(np.all(seconds % 86_400 == 0))
    ends = [datetime(1970, 1, 1) + timedelta(seconds=float(end)) for end in (seconds[0], seconds[-1])]
    low, high = (end.date().isoformat() if whole_days else end.isoformat(timespec="seconds") for end in ends)
    reason = "; ".join(["days" if whole_days else "times", *_written(read.keys)])
    lines = _marked({"min": low, "max": high} | read.keys)
    decision = Decision(look.name, "datetime", reason, read.warnings, tuple(lines))
    return _with_others(decision, look, others)


def _marked(keys: Mapping[str, object]) -> list[str]:
    """Return lines of the schema. A format is text, a bound is not."""
    return [f"{key} = {quoted(str(value)) if key in _FORMATS else value}   {MARK}" for key, value in keys.items()]


def _written(keys: dict[str, str]) -> list[str]:
    return [_FORMATS[key].format(quoted(text)) for key, text in keys.items()]


def _with_others(
    decision: Decision, look: Look, others: Others, apart: Bools | None = None, sentinels: Sequence[str] = ()
) -> Decision:
    """Add to numbers or times what becomes of the other cells."""
    reasons, warnings = [decision.reason], list(decision.warnings)
    markers, codes, odd = others
    special = _quoted(look, codes)
    for which, texts, what in (
        (codes, special, ", kept as special"),
        (markers, _quoted(look, markers), ", read as missing"),
        (apart, sentinels, ", far from the rest: kept as special"),
    ):
        if texts and which is not None:
            reasons.append(f"{' and '.join(texts)} in {percent(_mass(look, which), look.rows)} of the rows{what}")
    if count := _mass(look, odd):
        kind = "times" if decision.type == "datetime" else "numbers"
        such = f", such as {_example(look, odd)}" if look.is_text else ""
        warnings.append(f"no {kind} in {some(count, 'cell')}{such}: they will count as missing")
    special += sentinels
    lines = [f"special = [{', '.join(special)}]   {MARK}"] if special else []
    lines = [*decision.lines, *lines, *_missing(look, markers, odd=count > 0)]
    return Decision(look.name, decision.type, "; ".join(reasons), tuple(warnings), tuple(lines))


def _missing(look: Look, markers: Bools | None = None, *, odd: bool = False) -> list[str]:
    if markers is not None and markers.any():
        return [f"missing = [{', '.join(_quoted(look, markers))}]   {MARK}"]
    return ["missing = true"] if odd or look.cells < look.rows else []


# --- texts and categories ---


def _as_text(look: Look, why: str | None = None) -> Decision:
    if look.distinct > _FEW and look.distinct == look.cells and not why:
        return not_learned(look.name, "every value occurs once: identifier or free text")
    return _category(look, why)


def _category(look: Look, why: str | None, *, warnings: tuple[str, ...] = (), keep: bool = False) -> Decision:
    """Return a category. Leave the column out if its values are too many for the rows, unless it is to be kept."""
    markers = np.array([text.lower() in _BLANKS for text in look.texts], dtype=bool)
    if markers.all():
        markers[:] = False
    values = look.some(~markers) if markers.any() else look
    reason = some(values.distinct, "different value") + (f": {why}" if why else "")
    few = values.distinct <= _FEW or (values.distinct <= _SMALL and values.cells >= 2 * values.distinct)
    fits = values.distinct <= _MOST_VALUES and values.cells >= _FREQUENT * values.distinct
    if not (keep or few or fits):
        remedy = (
            "to keep it, group its values or list those that are publicly known; write numbers as 1234.5 and "
            "times as 2020-01-31T14:30"
        )
        return left_out(look.name, f"{reason}; too many for {look.rows:,} rows", remedy, *warnings)
    if rare := int(np.sum(values.counts < _FREQUENT)):
        reason += f"; {rare:,} of them in fewer than {_FREQUENT} rows"
    if markers.any():
        share = percent(_mass(look, markers), look.rows)
        reason += f"; {' and '.join(_quoted(look, markers))} in {share} of the rows, read as missing"
    lines = [*value_lines(sorted(set(values.texts) - {""}), MARK), *_missing(look, markers)]
    if values.distinct > _SMALL:
        said = "many values, read from the data: a rare one may belong to one person; use a public list instead"
        warnings, lines = (said, *warnings), [*lines, *_families(values.texts)]
    return Decision(look.name, "category", reason, warnings, tuple(lines))


def _families(values: list[str]) -> list[str]:
    """Return how many values are learned together if they are rare: by their first characters, if they are codes.

    >>> _families([f"{letter}{k:02}" for letter in "ABCDE" for k in range(40)])
    ['prefix = 2   # rare values are learned together with those that share the beginning']
    """
    coded = sum(any(sign.isdigit() for sign in value) for value in values) > len(values) / 2
    for length in range(8, 0, -1) if coded else ():
        if 2 <= len({value[:length] for value in values}) <= len(values) / 3:
            return [f"prefix = {length}   # rare values are learned together with those that share the beginning"]
    return ['rarest = "together"   # rare values are learned together']


def _label(look: Look) -> Decision:
    """Return a category, whatever the label looks like."""
    if not 2 <= look.distinct <= _MOST_CLASSES:
        raise DataError(
            f"the label {quoted(look.name)} has {look.distinct:,} different values; choose a column with 2 to "
            f"{_MOST_CLASSES:,}"
        )
    warnings = []
    if look.distinct > _FEW:
        warnings.append("a label of many classes is learned badly; group them, or choose another label")
    if look.cells < look.rows:
        warnings.append(
            f"{percent(look.rows - look.cells, look.rows)} of the labels are missing; write a word into those "
            "cells and add it to the values, or leave the rows out"
        )
    reason, lines = f"the label, with {look.distinct:,} classes", value_lines(sorted(set(look.texts) - {""}), MARK)
    return Decision(look.name, "category", reason, tuple(warnings), tuple(lines))


def _quoted(look: Look, which: Bools) -> list[str]:
    return sorted({quoted(look.texts[i]) for i in np.flatnonzero(which)})


def _example(look: Look, which: Bools) -> str:
    places: list[int] = np.flatnonzero(which).tolist()
    return quoted(look.texts[max(places, key=lambda i: look.counts[i])][:40])

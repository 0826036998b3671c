"""Infer what each column is from its cells, with the reason, for a draft that is confirmed by hand. PRIVATE."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.guess import Read, numbers_of, times_of
from repsynth.curator.profile import Look, percent, quoted, repeating, some
from repsynth.schema.sdv import Described

MARK = "# read from the data, not private: confirm or replace"
_FEW = 12
_SMALL = 100  # at most so many values always make a category
_MOST_VALUES = 1_000
_RARE = 10
_NEARLY_ALL, _NEARLY_CONSTANT = 0.9, 0.999
_MOST_DECIMALS = 6
_LARGEST = 2**52
_ENORMOUS = 1e200
_FORMATS = {"thousands": "{} between thousands", "decimal": "{} before decimals"}
_FORMATS |= {"prefix": "{} before the number", "dates": "written {}"}
PERSONAL = {
    *("id", "ids", "uuid", "guid", "ssn", "email", "mail", "phone", "telephone", "telefon", "tel"),
    *("mobile", "fax", "iban", "mrn", "passport", "imei", "vin", "surname", "lastname", "nachname"),
    *("firstname", "vorname", "forename", "fullname", "username", "login", "address", "street", "ip"),
    *("url"),
}
"""Words in the names of columns that tell who somebody is."""
_NUMBERING = {"number", "num", "no", "nr"}
_NAMED_CODES = {
    *("code", "codes", "zip", "zipcode", "postcode", "postal", "plz", "fips", "icd", "icd9", "icd10"),
    *("naics", "sic", "isco", "nace", "cpt", "atc", "ags", "nuts", "iso"),
}
MARKERS = {
    *("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "-", "--", ".", "..", "?", "(null)"),
    *("<na>", "#null!", "#value!", "#ref!", "#name?", "#div/0!", "#num!"),
}
"""Texts, in lower case, that tables write where there is no value."""
_MOST_TEXT_CODES = 8
_FREQUENT = 0.001
_ODD_CELLS = 0.1  # more cells than this that are neither numbers nor codes: no column of numbers
_CODES = re.compile(r"[A-Za-z]{1,4}[-. ]?\d+\S*|\d+[-. ]?[A-Za-z]{1,3}")
_TEN_YEARS = 3653 * 86_400.0
_DECLARED = "# as the file declares them: confirm or replace"
_DROPPED = "not learned: the synthetic table will have 1, 2, 3, ... in its place"


class Decision(msgspec.Struct, frozen=True):
    """What a column was taken for: its type, the lines of the schema below it, the reason, and what to look at."""

    name: str
    type: str
    reason: str
    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def decide(
    look: Look,
    *,
    is_label: bool = False,
    decimal: str | None = None,
    labels: Mapping[str, str] | None = None,
    described: Described | None = None,
) -> Decision:
    """Decide what a column is. `decimal`, `labels` of its codes and metadata (`described`) help if they are known.

    >>> decision = decide(Look.of("age", pa.chunked_array([["30", "41", "52", "N", "N", "N"] * 10])))
    >>> decision.type, decision.reason
    ('category', '4 different values: few whole numbers beside "N", taken for codes')
    """
    if described is not None and described.kind == "id" and not is_label:
        keys = {"format": described.format, "fake": described.fake}
        lines = tuple(f"{key} = {quoted(text)}" for key, text in keys.items() if text)
        return Decision(look.name, "id", "an id by the metadata", () if lines else (_DROPPED,), lines)
    if labels:
        return _labelled(look, labels, is_label=is_label, decimal=decimal)
    if not look.distinct:
        lines = ('values = ["?"]', *(["missing = true"] if look.rows else []))
        return Decision(look.name, "category", "the column is empty: declare its type, or leave it out", (), lines)
    kind = None if described is None else described.kind
    decision = _label(look) if is_label else _known(look, kind, decimal) or _any(look, decimal)
    warnings, fits = list(decision.warnings), {kind} | ({"integer"} if kind == "number" else set())
    if kind is not None and decision.type not in fits and not is_label:
        warnings.append(f"the metadata says {kind}, which its cells are not: taken for what they are")
    top = int(look.counts.max())
    if look.distinct > 1 and top > _NEARLY_CONSTANT * look.rows:
        fraction = percent(top, look.rows)
        warnings.append(f"one value in {fraction} of the rows: whoever differs stands out; better leave it out")
    return msgspec.structs.replace(decision, warnings=tuple(warnings))


def _known(look: Look, kind: str | None, decimal: str | None) -> Decision | None:
    """What metadata says that it is; None where it says nothing, or the cells are nothing such."""
    if kind == "category":
        return _category(look, "by the metadata", keep=True)
    if kind == "datetime" and (times := times_of(look)):
        return _as_date(look, times)
    if kind == "boolean" and {text.lower() for text in look.texts} <= {"true", "false"}:
        return Decision(look.name, "boolean", "true or false, by the metadata", (), tuple(_missing(look)))
    return _as_number(look, numbers_of(look, decimal)) if kind == "number" else None


def _labelled(look: Look, labels: Mapping[str, str], *, is_label: bool, decimal: str | None) -> Decision:
    """A category of the codes that the file labels; if other numbers occur, a number with special values."""
    unknown = np.array([text not in labels for text in look.texts], dtype=np.bool_)
    if not unknown.any():
        lines = [f"values = [   {_DECLARED}", *(f"  {quoted(c)},   # {_plain(t)}" for c, t in labels.items()), "]"]
        reason = f"{some(len(labels), 'code')} with a label in the file"
        return Decision(look.name, "category", reason, (), (*lines, *_missing(look)))
    rest = Look(look.name, look.type, look.values.filter(pa.array(unknown)), look.counts[unknown], look.codes)
    others = decide(rest, is_label=is_label, decimal=decimal)
    if others.type not in ("integer", "number"):
        return decide(look, is_label=is_label, decimal=decimal)
    kept = [line for line in others.lines if not line.startswith("special")]
    meaning = "; ".join(f"{quoted(code)}: {_plain(labels[code])}" for code in labels)
    special = f"special = [{', '.join(map(quoted, labels))}]   {_DECLARED}"
    reason = f"{others.reason}; codes with a label in the file, kept as special: {meaning}"
    return msgspec.structs.replace(others, reason=reason, lines=(*kept, special))


def _plain(label: str) -> str:
    """Return a label on one line, for a comment."""
    return quoted(" ".join(label.split()))[1:-1]


def _any(look: Look, decimal: str | None) -> Decision:
    if look.distinct == 1 and look.cells == look.rows and not pa.types.is_boolean(look.values.type):
        return _category(look, "the same in all rows: nothing to learn; better leave it out")
    if pa.types.is_boolean(look.values.type):
        return Decision(look.name, "boolean", "stored as true or false", (), tuple(_missing(look)))
    if pa.types.is_dictionary(look.type) and look.distinct <= _MOST_VALUES:
        return _category(look, "stored as a category")
    times, read = times_of(look), numbers_of(look, decimal)
    as_date = _as_date(look, times) if times else None
    if as_date and times and (times.keys.get("dates") == "%Y%m%d" or not np.isfinite(read.numbers).any()):
        return as_date
    return _named_identifier(look, read) or _as_number(look, read) or as_date or _as_text(look)


# --- cells among numbers that are no quantities, and numbers that are names ---


@dataclass(frozen=True)
class Others:
    """The values of a column that are no numbers: markers of missing cells, codes of their own, and odd ones."""

    markers: Bools
    codes: Bools
    odd: Bools


def others_among(look: Look, numbers: Floats) -> Others | None:
    """Sort the values that are no numbers; None if there are too many of them for a column of numbers."""
    other = ~np.isfinite(numbers)
    markers, frequent = np.zeros_like(other), np.zeros_like(other)
    if look.is_text:
        places = np.flatnonzero(other)
        markers[places] = [look.texts[i].lower() in MARKERS for i in places]
        frequent = other & ~markers & (look.counts >= max(3, _FREQUENT * look.cells))
    odd = other & ~markers & ~frequent
    if np.count_nonzero(frequent) > _MOST_TEXT_CODES:
        return None
    odd_cells = int(look.counts[odd].sum())
    if odd_cells > _ODD_CELLS * (odd_cells + int(look.counts[~other].sum())):
        return None
    named = [i for i in np.flatnonzero(odd | frequent) if look.is_text and _CODES.fullmatch(look.texts[i])]
    if len(named) > _MOST_TEXT_CODES:  # V58, E880, ... beside 250.83
        return None
    return Others(markers, frequent, odd)


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
    widest, typical, often = gaps.max(), np.median(gaps), np.median(amounts[usual])
    enough = np.maximum(max(5.0, 0.002 * amounts.sum()), 2 * often)
    below, above = values < min(rest.min(), 0.0), values > rest.max()
    found: list[int] = []
    for side, nearest in ((below, rest.min()), (above, rest.max())):
        apart = side & (amounts >= enough)
        distance = float(np.abs(values[apart] - nearest).min()) if apart.any() else 0.0
        # Below zero where all others are above it, little distance will do: -1 is no age.
        if distance >= (typical if side is below and rest.min() >= 0 else max(2 * widest, 5 * typical)):
            found += [int(value) for value in values[apart]]
    return found


def _is_round_code(value: float) -> bool:
    """-1 to -9, or a number of nines and the like: 77, 88, 96 to 99, 999, -99, ..."""
    if value != np.rint(value) or abs(value) > 1e12:
        return False
    digits = str(abs(int(value)))
    if len(digits) == 1:
        return -9 <= value < 0
    return (len(set(digits)) == 1 and digits[0] in "789") or (set(digits[:-1]) == {"9"} and digits[-1] in "678")


def why_codes(look: Look, numbers: Floats, counts: Ints) -> str | None:
    """Why these numbers name something rather than count it; None where nothing says so."""
    if look.is_text and _leading_zeros(look):
        return "some start with 0, which a number would lose: taken for codes"
    if not np.all(numbers == np.rint(numbers)):
        return None
    if is_named(words_of(look.name), _NAMED_CODES):
        return "named like a code: whole numbers taken for names, not for quantities"
    if _spread_like_codes(numbers, counts):
        return "whole numbers spread as codes are (do they count something? then an integer)"
    return None


def _leading_zeros(look: Look) -> bool:
    zero = np.array([len(text) > 1 and text.isdigit() and text[0] == "0" for text in look.texts], dtype=bool)
    fraction = look.counts[zero].sum() / look.cells
    same_width = len({len(text) for text in look.texts if text.isdigit()}) == 1
    return bool(fraction >= 0.01 or (zero.any() and same_width))


def _spread_like_codes(numbers: Floats, counts: Ints) -> bool:
    """Quantities get rarer towards large values and fill the space between; codes do neither."""
    values = np.unique(numbers)
    if not 30 <= len(values) <= 1000 or not 0 < values[0] <= values[-1] < 2**52 or counts.sum() < 20 * len(values):
        return False
    common = np.gcd.reduce(values.astype(np.int64))
    low, middle, high = values[0], float(np.median(values)), values[-1]
    thin = (high - low) / common >= 10 * len(values)
    return bool(thin and 0.25 <= (middle - low) / (high - low) <= 0.75)


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case: patient, id for patientId."""
    return re.findall(r"[^\W\d_]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def is_named(words: Sequence[str], known: Set[str]) -> bool:
    """Whether one of the words is known, or two that follow each other are as one."""
    return not known.isdisjoint([*words, *(first + second for first, second in pairwise(words))])


def sentinel_dates(seconds: Floats, counts: Ints) -> list[float]:
    """Return days such as 1 January 1900 that are ten years from the rest and frequent, in seconds since 1970."""
    times, places = np.unique(seconds, return_inverse=True)
    amounts = np.bincount(places, weights=counts)
    if len(times) < 10:
        return []
    frequent = amounts >= np.maximum(max(5.0, 0.002 * amounts.sum()), 2 * np.median(amounts))
    ends = ((times[0], times[1], frequent[0]), (times[-1], times[-2], frequent[-1]))
    return [float(end) for end, next_to, often in ends if often and abs(end - next_to) > _TEN_YEARS]


# --- numbers ---


def _as_number(look: Look, read: Read) -> Decision | None:
    """A number, where nearly all cells are one or one of a few codes."""
    finite = np.isfinite(read.numbers)
    if len(np.unique(read.numbers[finite])) <= 2 or np.abs(read.numbers[finite]).max() > _ENORMOUS:
        return None
    others = others_among(look, read.numbers)
    if others is None:
        return _as_text(look, f"numbers mixed with texts such as {_example(look, ~finite)}")
    if why := why_codes(look, read.numbers[finite], look.counts[finite]):
        return _category(look, why)
    sentinels = sentinel_numbers(read.numbers[finite], look.counts[finite])
    numbers = np.unique(read.numbers[finite & ~np.isin(read.numbers, sentinels)])
    whole = bool(np.all(numbers == np.rint(numbers))) and float(np.abs(numbers).max()) <= _LARGEST
    if whole and others.codes.any() and len(numbers) <= 20 and look.counts[finite].sum() >= 3 * len(numbers):
        codes = " and ".join(_quoted(look, others.codes))
        return _category(look, f"few whole numbers beside {codes}, taken for codes")
    if whole and not sentinels and not others.codes.any() and (why := _numbered(look, numbers)):
        return not_learned(look.name, why)
    if numbers[-1] - numbers[0] < 1 / _ENORMOUS:
        return None
    return _number(look, read, others, sentinels, numbers, whole=whole)


def _number(
    look: Look, read: Read, others: Others, sentinels: list[int], numbers: Floats, *, whole: bool
) -> Decision:
    keys = dict(read.keys)
    by_comma = whole and keys.get("decimal") == ","
    if by_comma and "thousands" in keys:  # 1.234: no decimals at all
        del keys["decimal"]
    elif by_comma:  # 5,0
        whole = False
    bounds, grid = _whole_grid(numbers) if whole else _grid(numbers, fewest=int(by_comma))
    shown = [f"{n:,.0f}" if n == np.rint(n) or abs(n) >= 1e5 else f"{n:,.6g}" for n in numbers[[0, -1]]]
    kind = f"{'whole ' if whole else ''}numbers from {shown[0]} to {shown[1]}"
    if whole and len(numbers) <= _FEW:
        kind = f"{len(numbers)} different {kind} (codes without an order? then a category)"
    warnings = list(read.warnings)
    if whole and not look.is_text and _like_dates(numbers):
        warnings.append("these look like dates (20200131) stored as numbers: store them as dates or as text")
    what, reason = "integer" if whole else "number", "; ".join([kind, *_written(keys), *grid])
    decision = Decision(look.name, what, reason, tuple(warnings), (*bounds, *_marked(keys)))
    return _with_others(decision, look, others, np.isin(read.numbers, sentinels), list(map(str, sentinels)))


def _whole_grid(numbers: Floats) -> tuple[list[str], list[str]]:
    """The bounds, and the step that all numbers keep, in lines and in words."""
    bounds = {"min": int(numbers[0]), "max": int(numbers[-1])}
    common = int(np.gcd.reduce(np.abs(numbers).astype(np.int64))) if len(numbers) > 5 else 1
    step = max(step for k in range(16) for step in (10**k, 5 * 10**k) if step == 1 or common % step == 0)
    if step == 1:
        return _marked(bounds), []
    return _marked(bounds | {"step": step}), [f"all multiples of {step:,}"]


def _grid(numbers: Floats, *, fewest: int) -> tuple[list[str], list[str]]:
    """The bounds, and the step or the decimals that all numbers keep, in lines and in words."""
    low, high = float(numbers[0]), float(numbers[-1])
    for decimals in range(fewest, _MOST_DECIMALS + 1):
        scaled = np.rint(numbers * 10.0**decimals)
        if max(np.abs(scaled).max(), scaled[-1] - scaled[0]) > _LARGEST:
            break
        if np.array_equal(scaled / 10.0**decimals, numbers):
            bounds = {"min": f"{low:.{decimals}f}", "max": f"{high:.{decimals}f}"}
            if not np.any(scaled % 5) and not fewest:
                step = f"{5 * 10.0**-decimals:.{decimals}f}"
                return _marked(bounds | {"step": step}), [f"all multiples of {step}"]
            return _marked(bounds | {"decimals": decimals}), [f"at most {some(decimals, 'decimal')}"]
    return _marked({"min": repr(low), "max": repr(high)}), []


def _numbered(look: Look, numbers: Floats) -> str | None:
    """Why whole numbers that are all different are no quantity."""
    if not len(numbers) == look.cells > _FEW:
        return None
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return "every whole number in a row occurs once: a running number"
    shortest, longest = len(str(int(numbers[0]))), len(str(int(numbers[-1])))
    if shortest == longest >= 8 and numbers[0] > 0 and not _like_dates(numbers):
        return f"all different, of {longest} digits each: an identifier"
    return None


def _like_dates(numbers: Floats) -> bool:
    """Whether whole numbers read as 20200131 does."""
    days, months = numbers % 100, numbers // 100 % 100
    inside = (numbers >= 1900_01_01) & (numbers < 2100_01_01) & (days >= 1) & (days <= 31) & (months >= 1)
    return bool(np.all(inside & (months <= 12)))


# --- dates ---


def _as_date(look: Look, read: Read) -> Decision | None:
    """A time, where nearly all cells are one or one of a few codes."""
    finite = np.isfinite(read.numbers)
    others = others_among(look, read.numbers)
    if others is None or not finite.any():
        return None
    apart = sentinel_dates(read.numbers[finite], look.counts[finite]) if look.is_text else []
    sentinels = np.isin(read.numbers, apart)
    seconds = np.unique(read.numbers[finite & ~sentinels])
    if len(seconds) <= 1:
        return None
    whole_days = bool(np.all(seconds % 86_400 == 0))
    ends = [datetime(1970, 1, 1) + timedelta(seconds=float(end)) for end in (seconds[0], seconds[-1])]
    low, high = (end.date().isoformat() if whole_days else end.isoformat(timespec="seconds") for end in ends)
    reason = "; ".join(["days" if whole_days else "times", *_written(read.keys)])
    lines = _marked({"min": low, "max": high} | read.keys)
    decision = Decision(look.name, "datetime", reason, read.warnings, tuple(lines))
    return _with_others(decision, look, others, sentinels, _quoted(look, sentinels))


# --- what is said of both ---


def _marked(keys: Mapping[str, object]) -> list[str]:
    """Lines of the schema; a format is text, bounds are not."""
    return [f"{key} = {quoted(str(value)) if key in _FORMATS else value}   {MARK}" for key, value in keys.items()]


def _written(keys: dict[str, str]) -> list[str]:
    return [_FORMATS[key].format(quoted(text)) for key, text in keys.items()]


def _with_others(decision: Decision, look: Look, others: Others, apart: Bools, sentinels: list[str]) -> Decision:
    """Add to numbers or times what is said of the other cells: codes, markers, sentinels far apart, odd cells."""
    reasons, warnings = [decision.reason], list(decision.warnings)
    special = _quoted(look, others.codes)
    for which, texts, what in (
        (others.codes, special, ", kept as special"),
        (others.markers, _quoted(look, others.markers), ", read as missing"),
        (apart, sentinels, ", far from the rest: kept as special"),
    ):
        if texts:
            fraction = percent(look.counts[which].sum(), look.rows)
            reasons.append(f"{' and '.join(texts)} in {fraction} of the rows{what}")
    if odd := int(look.counts[others.odd].sum()):
        kind = "times" if decision.type == "datetime" else "numbers"
        such = f", such as {_example(look, others.odd)}" if look.is_text else ""
        warnings.append(f"no {kind} in {some(odd, 'cell')}{such}: they will count as missing")
    special += sentinels
    lines = [f"special = [{', '.join(special)}]   {MARK}"] if special else []
    lines = [*decision.lines, *lines, *_missing(look, others)]
    return Decision(look.name, decision.type, "; ".join(reasons), tuple(warnings), tuple(lines))


def _missing(look: Look, others: Others | None = None) -> list[str]:
    unread = others is not None and bool((others.markers | others.odd).any())
    return ["missing = true"] if unread or look.cells < look.rows else []


# --- text ---


def not_learned(name: str, why: str, warnings: tuple[str, ...] = ()) -> Decision:
    return Decision(name, "id", why, (_DROPPED, *warnings))


def _named_identifier(look: Look, read: Read) -> Decision | None:
    """An identifier by its name, where it has more values than a category would."""
    words = words_of(look.name)
    while words and words[-1] in _NUMBERING:
        words.pop()
    finite = np.isfinite(read.numbers)
    if 2 * look.counts[finite].sum() > look.cells:  # the last word says what is counted: phone calls are no phones
        named = not PERSONAL.isdisjoint({*words[-1:], "".join(words[-2:])})
    else:
        named = is_named(words, PERSONAL) or ("name" in words and look.distinct > look.rows / 20)
    if not named or look.distinct <= _FEW or np.any(read.numbers[finite] % 1):
        return None
    repeats = repeating(look.name, look.distinct, look.cells, int(look.counts.max()))
    if look.distinct <= min(_SMALL, look.rows / 10):
        return _category(look, "named like an identifier", warnings=(f"{repeats}, or make it an id",))
    repeated = (f"{repeats}; if it stands for something else, such as a shop, make it a category",)
    return not_learned(look.name, "named like an identifier", repeated if look.distinct < look.cells else ())


def _as_text(look: Look, why: str | None = None) -> Decision:
    remedy = _remedy(look)
    if look.distinct > _FEW and look.distinct == look.cells and not why:
        return not_learned(look.name, "every value occurs once: identifier or free text", remedy)
    return _category(look, why, warnings=remedy)


def _category(look: Look, why: str | None, *, warnings: tuple[str, ...] = (), keep: bool = False) -> Decision:
    """A category, where it has few values or most of them are frequent, or it is to be kept; otherwise an id."""
    distinct, rare = look.distinct, int(np.sum(look.counts < _RARE))
    reason = some(distinct, "different value") + (f": {why}" if why else "")
    scattered = distinct > _FEW and 2 * distinct > look.cells
    if not keep and (scattered or distinct > _MOST_VALUES or (distinct > _SMALL and 2 * rare > distinct)):
        said = "too many, and most of them rare" if 2 * rare > distinct else "too many"
        warning = (
            f"{_DROPPED}. To keep it, group its values, or make it a category of those that are publicly known "
            "(others will count as missing)"
        )
        return Decision(look.name, "id", f"{reason}; {said}", (warning, *warnings))
    if rare:
        reason += f"; {rare:,} of them in fewer than {_RARE} rows"
    if distinct > _SMALL:
        said = "many values, read from the data: a rare one is somebody's; use a public list instead"
        warnings = (said, *warnings)
    return Decision(look.name, "category", reason, warnings, (*_values(look.texts), *_missing(look)))


def _values(texts: Iterable[str]) -> list[str]:
    return [f"values = [   {MARK}", *(f"  {quoted(text)}," for text in sorted(set(texts) - {""})), "]"]


def _label(look: Look) -> Decision:
    """The label is a category, whatever it looks like."""
    reason, warnings = f"the label, with {look.distinct:,} classes", []
    if look.distinct > _FEW:
        warnings.append("a label of many classes is learned badly; group them, or choose another label")
    if look.cells < look.rows:
        warnings.append(
            f"{percent(look.rows - look.cells, look.rows)} of the labels are missing; write a word into those "
            "cells and add it to the values, or leave the rows out"
        )
    return Decision(look.name, "category", reason, tuple(warnings), tuple(_values(look.texts)))


_NEARLY = re.compile(r"[(+-]*[$€£]?\s?[0-9][0-9.,:/' ]*\)?-?\s?[^\s0-9.,'+:/-]{0,8}|.*[0-9]:[0-9]{2}\s?[AaPp][Mm]")


def _remedy(look: Look) -> tuple[str, ...]:
    fits = np.array([bool(_NEARLY.fullmatch(text)) for text in look.texts])
    if look.distinct <= _FEW or look.counts[fits].sum() < _NEARLY_ALL * look.cells:
        return ()
    return ("most cells look like numbers or times: write 1234.5 or 2020-01-31T14:30 to have them learned",)


def _quoted(look: Look, which: Bools) -> list[str]:
    return sorted({quoted(look.texts[i]) for i in np.flatnonzero(which)})


def _example(look: Look, which: Bools) -> str:
    places: list[int] = np.flatnonzero(which).tolist()
    return quoted(look.texts[max(places, key=lambda i: look.counts[i])][:40])

"""Cells among numbers that are no quantities: "N" or -9 for "not asked", and numbers that name something."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.look import Look

MARKERS = {
    *(
        "",
        "na",
        "n/a",
        "#n/a",
        "nan",
        "null",
        "none",
        "nil",
        "missing",
        "-",
        "--",
        ".",
        "..",
        "?",
        "(null)",
        "<na>",
    ),
    *("<na>", "#null!", "#value!", "#ref!", "#name?", "#div/0!", "#num!"),
}
"""Texts that tables write, in any case, where there is no value."""

_MOST_TEXT_CODES = 8
_FREQUENT = 0.001
_ODD_CELLS = 0.1  # more cells than this that are neither numbers nor codes: no column of numbers
_CODES = re.compile(r"[A-Za-z]{1,4}[-. ]?\d+\S*|\d+[-. ]?[A-Za-z]{1,3}")
_TEN_YEARS = 3653 * 86_400.0
_NAMED_CODES = {
    *(
        "code",
        "codes",
        "zip",
        "zipcode",
        "postcode",
        "postal",
        "plz",
        "fips",
        "icd",
        "icd9",
        "icd10",
        "naics",
        "sic",
    ),
    *("isco", "nace", "cpt", "atc", "ags", "nuts", "iso"),
}


@dataclass(frozen=True)
class Others:
    """The values of a column that are no numbers: markers of missing cells, codes of their own, and odd ones."""

    markers: Bools
    codes: Bools
    odd: Bools


def others_among(look: Look, numbers: Floats) -> Others | None:
    """What is beside the numbers; None where it is so much that these are no numbers."""
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
    """Numbers such as -9, 99 or 9999 that stand apart from the rest and are frequent.

    >>> ages = np.array([*range(18, 80), 999.0])
    >>> sentinel_numbers(ages, np.append(np.full(62, 10), 40))
    [999]
    >>> sentinel_numbers(ages[:-1], np.full(62, 10))
    []
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
    """The words of a column's name in lower case.

    >>> words_of("patientId"), words_of("E-Mail 2")
    (['patient', 'id'], ['e', 'mail', '2'])
    """
    return re.findall(r"[^\W\d_]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def is_named(words: Sequence[str], known: Set[str]) -> bool:
    """Whether one of the words is known, or two that follow each other are as one.

    >>> is_named(words_of("E-Mail"), {"email"}), is_named(words_of("female"), {"email"})
    (True, False)
    """
    return not known.isdisjoint([*words, *(first + second for first, second in pairwise(words))])


def sentinel_dates(seconds: Floats, counts: Ints) -> list[float]:
    """Days such as 1 January 1900 that stand years apart from the rest and are frequent.

    >>> days = np.array([-25567, *range(10_000, 11_000)]) * 86_400.0
    >>> sentinel_dates(days, np.array([50, *[1] * 1000]))
    [-2208988800.0]
    """
    times, places = np.unique(seconds, return_inverse=True)
    amounts = np.bincount(places, weights=counts)
    if len(times) < 10:
        return []
    frequent = amounts >= np.maximum(max(5.0, 0.002 * amounts.sum()), 2 * np.median(amounts))
    ends = ((times[0], times[1], frequent[0]), (times[-1], times[-2], frequent[-1]))
    return [float(end) for end, next_to, often in ends if often and abs(end - next_to) > _TEN_YEARS]

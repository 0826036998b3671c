"""Make up ids: numbers, a public format, or Faker. No id depends on a cell of the table.

The id of a row depends on the sampling seed and the row's number only, so pieces of a table can be made in any
order. Ids of one format are distinct: row numbers go through a keyed permutation of all ids of the format.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.arrays import Ints
from repsynth.errors import ConfigError
from repsynth.schema import Id, Schema
from repsynth.schema.formats import IdFormat

_ROUNDS = 6
_MOST_ROOM = 2**60
"""Size of the largest permutation. The remaining characters of a longer format are random."""

_LOCALE = "en_US"


def check_ids(schema: Schema, rows: int) -> None:
    """Refuse formats with too few ids and unusable Faker providers, before anything is spent."""
    for column in schema.columns:
        if isinstance(column, Id) and column.format is not None and (room := IdFormat(column.format).room) < rows:
            raise ConfigError(
                f"column '{column.name}': its format has room for {room:,} different ids, but the table gets "
                f"{rows:,} rows; draw fewer, or give it a longer format before a release is made"
            )
        if isinstance(column, Id) and column.fake is not None:
            _faker(column)


def room_for_ids(schema: Schema) -> int | None:
    """Return how many rows can have different ids; None where there is no limit."""
    formats = [IdFormat(c.format).room for c in schema.columns if isinstance(c, Id) and c.format is not None]
    return min(formats, default=None)


def make_ids(column: Id, rows: int, *, first: int = 1, seed: int = 0) -> pa.Array:
    """Make ids for rows from number `first` on.

    >>> make_ids(Id(name="person"), 2, first=7).to_pylist()
    [7, 8]
    >>> make_ids(Id(name="person", format="P-###"), 2, seed=3).to_pylist()
    ['P-708', 'P-953']
    """
    if column.format is not None:
        return _in_format(IdFormat(column.format), _of_column(seed, column), first - 1, rows)
    if column.fake is not None:
        return _made_up(column, _of_column(seed, column, first), rows)
    return pa.array(np.arange(first, first + rows))


def _of_column(seed: int, column: Id, *more: int) -> np.random.SeedSequence:
    """Return the seed of one column, independent of other columns and of the records."""
    name = int.from_bytes(column.name.encode("utf-8")[:64], "little")
    return np.random.SeedSequence(seed, spawn_key=(0, name, *more))


# --- formats ---


def _in_format(form: IdFormat, own: np.random.SeedSequence, start: int, rows: int) -> pa.Array:
    keys, more = own.spawn(2)
    choices = form.choices
    told = [1]  # numbers of ids by the first symbols, up to the largest permutation
    while len(told) <= len(choices) and told[-1] * len(choices[len(told) - 1]) <= _MOST_ROOM:
        told.append(told[-1] * len(choices[len(told) - 1]))
    numbers = shuffled(np.arange(start, start + rows, dtype=np.uint64), told[-1], keys)
    digits = []
    for i, characters in enumerate(choices):
        if i + 1 < len(told):
            numbers, digit = np.divmod(numbers, np.uint64(len(characters)))
        else:
            digit = _hashed(np.arange(start, start + rows, dtype=np.uint64), _key(more, i)) % np.uint64(
                len(characters)
            )
        digits.append(digit.astype(np.int64))
    return _written(form, digits, rows)


def _written(form: IdFormat, digits: Sequence[Ints], rows: int) -> pa.Array:
    """Write ids from the chosen character of each symbol, by columns of code points."""
    points = np.zeros((rows, len(form.parts or ())), dtype=np.uint32)
    left = iter(digits)
    for place, (characters, chosen) in enumerate(form.parts or ()):
        alphabet = np.array([ord(character) for character in characters], dtype=np.uint32)
        points[:, place] = alphabet[next(left)] if chosen else alphabet[0]
    return pa.array(points.view(f"<U{points.shape[1]}").ravel(), pa.string())


def shuffled(numbers: Any, room: int, keys: np.random.SeedSequence) -> Any:
    """Permute numbers below `room` by a Feistel network, with cycle walking (Black and Rogaway 2002).

    >>> sorted(shuffled(np.arange(1000, dtype=np.uint64), 1000, np.random.SeedSequence(1)).tolist())[:3]
    [0, 1, 2]
    """
    half = np.uint64(max(1, ((room - 1).bit_length() + 1) // 2))
    low = np.uint64(2 ** int(half) - 1)
    rounds = [_key(keys, i) for i in range(_ROUNDS)]

    def once(values: Any) -> Any:
        left, right = values >> half, values & low
        left, right = reduce(lambda at, key: (at[1], at[0] ^ (_hashed(at[1], key) & low)), rounds, (left, right))
        return (left << half) | right

    found = once(numbers)
    outside = np.flatnonzero(found >= np.uint64(room))
    while outside.size:
        found[outside] = once(found[outside])
        outside = outside[found[outside] >= np.uint64(room)]
    return found


def _key(own: np.random.SeedSequence, place: int) -> np.uint64:
    words = own.generate_state(place + 1, np.uint64)
    return np.uint64(words[place])


def _hashed(values: Any, key: np.uint64) -> Any:
    """Hash each number by the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = values * np.uint64(0x9E3779B97F4A7C15) + key
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


# --- Faker ---


def _made_up(column: Id, own: np.random.SeedSequence, rows: int) -> pa.Array:
    faker = _faker(column)
    faker.seed_instance(int.from_bytes(own.generate_state(4).tobytes(), "little"))
    make = getattr(faker, column.fake or "")
    return pa.array([" ".join(make().split()) for _ in range(rows)], pa.string())


def _faker(column: Id) -> Any:
    try:
        from faker import Faker
    except ImportError:
        raise ConfigError(
            f"column '{column.name}': fake = \"{column.fake}\" needs Faker; pip install 'repsynth[fake]'"
        ) from None
    try:
        faker = Faker(column.locale or _LOCALE, use_weighting=False)
        getattr(faker, column.fake or "")()
    except AttributeError:
        raise ConfigError(
            f"column '{column.name}': Faker has no '{column.fake}' for the locale {column.locale}; use another "
            "one, such as de_DE"
        ) from None
    return faker

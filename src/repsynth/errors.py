"""Every error the tool raises on purpose.

    RepsynthError
    ├── SchemaError      the schema file is wrong; carries all its problems at once
    ├── ConfigError      the settings are wrong or cannot be met; raised before the data is opened
    ├── DataError        the table cannot be read, or its columns are not the schema's
    ├── ReleaseError     a release folder is damaged, of another version, or in the way
    └── LedgerError      the ledger is damaged, out of reach, or does not cover the cost

A message says what is wrong, where, and what to do. It never quotes a value of the data. It may name columns,
count them and quote the public schema. Pass a path or an address from a user through `shown`, and text from a
file through `printable`.
"""

import os
import re
from typing import Any

CONTROLS = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Characters that a terminal obeys or that change the direction of text, as a pattern for Python and Arrow."""

_CONTROLS = re.compile(CONTROLS)
_ADDRESS = re.compile(
    r"""@ | :(?!(?<=^[a-z]:)[\\/])  # but for C:\ or C:/
    | \bpostgres\w*//
    | (password|passwd|pwd|passfile|\b(user|username|uid|host|hostaddr|server|dbname|database|service))\s*=""",
    re.IGNORECASE | re.VERBOSE,
)


class RepsynthError(Exception):
    """Base of all errors that a user can cause and fix."""


class SchemaError(RepsynthError):
    """The schema has mistakes. `problems` has a line for each of them.

    >>> str(SchemaError(["line 2: unknown type 'int'; use 'integer'"]))
    "line 2: unknown type 'int'; use 'integer'"
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class ConfigError(RepsynthError):
    """A setting is wrong or cannot be met; nothing was read and nothing was spent."""


class DataError(RepsynthError):
    """The table cannot be opened, or its columns do not match the schema."""


class ReleaseError(RepsynthError):
    """A release folder cannot be read or written."""


class LedgerError(RepsynthError):
    """The ledger cannot be used or does not cover the cost; nothing was measured."""


class RepsynthWarning(UserWarning):
    """Something that a user should know although nothing is wrong. It quotes no data."""


def printable(text: str) -> str:
    """Escape control characters and those that change the direction of text, which a terminal would obey.

    >>> printable("age\\x1b[2J")
    'age\\\\u001b[2J'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def has_controls(*found: Any) -> bool:
    """Whether a text, or one in nested lists and dictionaries, has characters that `printable` escapes.

    >>> has_controls({"columns": [{"age\\u202e": 1}]}), has_controls("Größe", 3, None)
    (True, False)
    """
    waiting = list(found)
    while waiting:
        each = waiting.pop()
        if isinstance(each, str) and _CONTROLS.search(each):
            return True
        if isinstance(each, dict):
            waiting += (*each, *each.values())
        elif isinstance(each, list | tuple):
            waiting += each
    return False


def shown(path: object) -> str:
    """Return a path for a message. Hide what could be the address of a database: it may hold a password.

    >>> shown("people.csv"), shown("postgresql:/me:secret@host/db"), shown("host=h password=secret")
    ('people.csv', 'the PostgreSQL address', 'what looks like a database address')
    """
    text = str(path)
    if os.path.lexists(text) or not _ADDRESS.search(text):
        return printable(text)
    return "the PostgreSQL address" if "postgres" in text.lower() else "what looks like a database address"

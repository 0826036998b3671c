"""How identifiers are written that are made anew: formats such as `###-##-####`.

#   a digit            %   a digit from 1 to 9      ^   a digit or a letter from a to f
?   a capital letter   *   a small letter           \\   the next character stands for itself

Every other character stands for itself.
"""

import math
import string
from dataclasses import dataclass
from functools import cached_property

SYMBOLS = {
    "#": string.digits,
    "%": string.digits[1:],
    "?": string.ascii_uppercase,
    "*": string.ascii_lowercase,
    "^": string.digits + "abcdef",
}

FAKES = (
    *("name", "first_name", "last_name", "user_name", "email", "phone_number", "address", "street_address"),
    *("city", "postcode", "country", "company", "job", "iban", "url", "ipv4", "word", "sentence", "text"),
)
"""What Faker may be asked to make up: each the name of one of its functions."""

_ESCAPE = "\\"
_LONGEST = 64


@dataclass(frozen=True)
class IdFormat:
    """A format of symbols and of characters that stand for themselves.

    >>> code = IdFormat("EMP-##?")
    >>> code.room, code.write([0, 7, 25])
    (2600, 'EMP-07Z')
    """

    text: str

    @property
    def problem(self) -> str | None:
        """Why no identifiers can be written in it, None where they can."""
        if not 0 < len(self.text) <= _LONGEST or not self.text.isprintable():
            return f"it must have from 1 to {_LONGEST} characters that can be printed"
        if self.parts is None:
            return "nothing stands behind its last \\"
        if self.room == 1:
            return "all ids would be the same: it has no " + " ".join(SYMBOLS)
        return None

    @cached_property
    def parts(self) -> tuple[tuple[str, bool], ...] | None:
        """The characters that may stand at each place, and whether one of them is chosen; None where it ends amid
        an escape."""
        found, escaped = [], False
        for character in self.text:
            if character == _ESCAPE and not escaped:
                escaped = True
                continue
            chosen = not escaped and character in SYMBOLS
            found.append((SYMBOLS[character] if chosen else character, chosen))
            escaped = False
        return None if escaped else tuple(found)

    @property
    def choices(self) -> list[str]:
        """For each symbol the characters it stands for."""
        return [characters for characters, chosen in self.parts or () if chosen]

    @property
    def room(self) -> int:
        """How many different ids there are."""
        return math.prod(map(len, self.choices))

    @property
    def whole_number(self) -> bool:
        """Whether every id is a whole number that storage of 64 bits can hold."""
        parts = self.parts or ()
        return len(parts) <= 18 and all(set(characters) <= set(string.digits) for characters, _ in parts)

    def write(self, places: list[int]) -> str:
        """The id with these characters, counted among those that each symbol stands for."""
        left = iter(places)
        return "".join(characters[next(left)] if chosen else characters for characters, chosen in self.parts or ())


def escaped(text: str) -> str:
    """The format of a text that stands for itself.

    >>> escaped("No. #")
    'No. \\\\#'
    """
    return "".join(_ESCAPE + c if c in SYMBOLS or c == _ESCAPE else c for c in text)

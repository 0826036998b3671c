"""How dates are written where it is not ISO's way: formats such as `%d.%m.%Y`, read and written alike everywhere.

Python's own `strptime` takes the names of months from the machine's language; here they are English.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_PARTS = {"d": "day", "m": "month", "b": "month", "B": "month", "Y": "year", "y": "year"}
_PARTS |= {"H": "hour", "M": "minute", "S": "second"}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)


@dataclass(frozen=True)
class DateFormat:
    """A format of directives and literal text.

    >>> format = DateFormat("%d.%m.%Y")
    >>> format.read("31.1.2020"), format.write(datetime(2020, 1, 31))
    (datetime.datetime(2020, 1, 31, 0, 0), '31.01.2020')
    """

    text: str

    @property
    def problem(self) -> str | None:
        """Why no day can be read from this format, None where one can."""
        directives = _DIRECTIVE.findall(self.text)
        unknown = next((letter for letter in directives if letter not in _PARTS), None)
        if unknown is not None:
            return f"%{unknown} is unknown; use " + " ".join(f"%{letter}" for letter in _PARTS)
        parts = [_PARTS[letter] for letter in directives]
        if len(parts) > len(set(parts)):
            return "it names one part of the date twice"
        if not {"day", "month", "year"} <= set(parts):
            return "it must name a day, a month and a year, as %d.%m.%Y does"
        in_order = [part for part in ("hour", "minute", "second") if part in parts]
        if in_order != ["hour", "minute", "second"][: len(in_order)]:
            return "minutes need hours (%H) before them, and seconds need minutes (%M)"
        if re.search("[0-9]", _DIRECTIVE.sub("", self.text)):
            return "digits between its parts cannot be told from those of the date"
        return None

    @property
    def is_number(self) -> bool:
        """Whether its texts are whole numbers without leading zeros, such as 20200131."""
        return re.fullmatch("%Y(%[md])+", self.text) is not None

    @property
    def has_time(self) -> bool:
        return "%H" in self.text

    @property
    def seconds(self) -> int:
        """How many seconds apart two times are at least that it can tell apart."""
        return 1 if "%S" in self.text else 60 if "%M" in self.text else 3600 if "%H" in self.text else 86_400

    def read(self, text: str) -> datetime | None:
        """The time that a text names, None where it names none."""
        found = self._compiled.fullmatch(text)
        if found is None:
            return None
        parts = {name: _value(name, part) for name, part in found.groupdict().items()}
        try:
            return datetime(**parts)  # type: ignore[arg-type]
        except ValueError:
            return None

    def write(self, time: datetime) -> str:
        month = _MONTHS[time.month - 1]
        texts = {"B": month, "b": month[:3], "Y": f"{time.year:04}", "y": f"{time.year % 100:02}"}
        return _DIRECTIVE.sub(
            lambda found: texts.get(found[1]) or f"{getattr(time, _PARTS[found[1]]):02}", self.text
        )

    @cached_property
    def pattern(self) -> str:
        """A regular expression that all its texts match; upper and lower case are alike. One digit will do for a
        day where no other part touches it."""
        pieces = re.split(r"(%.)", self.text)
        pattern = ""
        for i, piece in enumerate(pieces):
            if i % 2 == 0:
                pattern += r"\s+".join(re.escape(word) for word in re.split(r"\s+", piece))
                continue
            names = _MONTHS if piece == "%B" else tuple(month[:3] for month in _MONTHS)
            touches = "" in (pieces[i - 1] if i > 1 else " ", pieces[i + 1] if i + 2 < len(pieces) else " ")
            digits = "[0-9]{4}" if piece == "%Y" else "[0-9]{2}" if touches or piece == "%y" else "[0-9]{1,2}"
            pattern += f"(?P<{_PARTS[piece[1]]}>{'|'.join(names) if piece in ('%b', '%B') else digits})"
        return pattern

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE | re.ASCII)


def _value(name: str, text: str) -> int:
    if not text.isdigit():
        return 1 + next(i for i, month in enumerate(_MONTHS) if month[:3].lower() == text[:3].lower())
    if name == "year" and len(text) == 2:
        return int(text) + (2000 if int(text) < 69 else 1900)  # as Python and POSIX take it
    return int(text)

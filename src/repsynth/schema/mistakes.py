"""How mistakes in a schema are reported."""

import difflib
from collections.abc import Callable
from typing import Any

Report = Callable[[str | None, str | None, str], None]
"""Hears of a mistake: in which column, at which key, and what is wrong."""


def did_you_mean(word: Any, words: Any) -> str:
    """A hint at the word that may have been meant.

    >>> did_you_mean("intger", ("integer", "number")), did_you_mean("x", ("integer",))
    (" (did you mean 'integer'?)", '')
    """
    close = difflib.get_close_matches(str(word), list(words), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""

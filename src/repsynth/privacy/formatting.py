"""Format bounds as text, rounded to the safe side: upper bounds up, lower bounds down.

A float is taken as its shortest decimal representation, so a δ of 1e-9 is printed as 1e-09. JSON output has all
digits and is not rounded.
"""

import math
import textwrap
from abc import abstractmethod
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from html import escape

Z_95 = 1.959964
"""Standard errors on each side of a 95 % interval."""

_LINE = 110


@dataclass(frozen=True)
class Summary:
    """The answer in one or two sentences, and the numbers that matter, most important first."""

    answer: str
    facts: tuple[tuple[str, str], ...]


class Summarised:
    """A result that prints as two or three lines and displays as a small table in a notebook."""

    __slots__ = ()

    @property
    @abstractmethod
    def summary(self) -> Summary:
        """The answer and the numbers that a subclass shows."""

    def __repr__(self) -> str:
        facts = [f"{name}: {value}" for name, value in self.summary.facts]
        while len(facts) > 1 and len("; ".join(facts)) > _LINE:
            facts.pop()
        return "\n".join([*textwrap.wrap(self.summary.answer, _LINE), "; ".join(facts)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in self.summary.facts
        )
        return f"<p>{escape(self.summary.answer)}</p><table>{rows}</table>"


def points(standard_error: float) -> str:
    """Return the 95 % half width of a share, in percentage points; 100 at most, as a share is between 0 and 1.

    >>> points(0.0123)
    '± 2.5 percentage points'
    """
    return f"± {fixed_upper(min(100 * Z_95 * standard_error, 100.0), 1)} percentage points"


def promise(
    epsilon: float, delta: float, outliers: float | None = None, *, who: str = "", before: bool = False
) -> tuple[str, ...]:
    """Return the promise in words: for everyone and, if theirs is smaller, for outliers.

    The bound for outliers is joint: it holds for sets of releases in which a record's weight is small. With
    `before`, weights were public before the run, and it holds for all releases.

    >>> for sentence in promise(1.0, 1e-6, 0.3239, who="a person counts as an outlier"):
    ...     print(sentence)
    Everyone's privacy loss is at most ε = 1 at δ = 1e-06.
    Outliers: over the releases in which a person counts as an outlier, their loss is at most ε = 0.324.
    """
    whole = f"Everyone's privacy loss is at most ε = {upper(epsilon)} at δ = {upper(delta, 3)}."
    if outliers is None:
        return (whole,)
    less = f"their loss is at most ε = {upper(outliers, 3)}."
    if before:
        return whole, f"Outliers by the scores of the earlier release: guaranteed before the run, {less}"
    return whole, f"Outliers: over the releases in which {who}, {less}"


def best_guess(advantage: float) -> str:
    """Return what the best attack on any record achieves.

    >>> best_guess(0.0725)
    'right in at most 53.7 of 100 guesses (a coin: 50)'
    """
    return f"right in at most {fixed_upper(50 + 50 * advantage, 1)} of 100 guesses (a coin: 50)"


def upper(value: float, digits: int = 4) -> str:
    """Return an upper bound to this number of significant digits.

    >>> upper(0.24011, 3), upper(1.0), upper(1e-9), upper(0.99996)
    ('0.241', '1', '1e-09', '1')
    """
    return _significant(value, digits, ROUND_CEILING)


def lower(value: float, digits: int = 4) -> str:
    """Return a lower bound to this number of significant digits.

    >>> lower(0.24019, 3), lower(1.0), lower(0.0)
    ('0.24', '1', '0')
    """
    return _significant(value, digits, ROUND_FLOOR)


def fixed_upper(value: float, places: int = 4) -> str:
    """Return an upper bound to this number of decimal places.

    >>> fixed_upper(1234.00001, 3), fixed_upper(0.5, 2)
    ('1,234.001', '0.50')
    """
    return _fixed(value, places, ROUND_CEILING)


def fixed_lower(value: float, places: int = 4) -> str:
    """Return a lower bound to this number of decimal places.

    >>> fixed_lower(1234.56789, 2)
    '1,234.56'
    """
    return _fixed(value, places, ROUND_FLOOR)


def percent_upper(value: float, places: int = 1) -> str:
    """Return an upper bound on a fraction, in percent.

    >>> percent_upper(0.12301), percent_upper(0.5)
    ('12.4%', '50.0%')
    """
    return _percent(value, places, ROUND_CEILING)


def percent_lower(value: float, places: int = 1) -> str:
    """Return a lower bound on a fraction, in percent.

    >>> percent_lower(0.12399)
    '12.3%'
    """
    return _percent(value, places, ROUND_FLOOR)


def _significant(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    place = Decimal(repr(float(value))).adjusted() - digits + 1
    return f"{float(_rounded(value, place, rounding)):.{digits}g}"  # the float has the same few digits


def _fixed(value: float, places: int, rounding: str) -> str:
    return f"{_rounded(value, -places, rounding):,.{places}f}" if math.isfinite(value) else f"{value:g}"


def _percent(value: float, places: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{_rounded(value, -places, rounding, shift=2):.{places}f}%"


def _rounded(value: float, exponent: int, rounding: str, shift: int = 0) -> Decimal:
    with localcontext() as context:
        context.prec = 400  # a float between 1e-308 and 1e308, to a few digits
        return Decimal(repr(float(value))).scaleb(shift).quantize(Decimal(1).scaleb(exponent), rounding=rounding)

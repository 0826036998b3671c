"""Format bounds as text, rounded to the safe side: upper bounds up, lower bounds down.

A float is taken as its shortest decimal representation, so a δ of 1e-9 is printed as 1e-09. JSON output has all
digits and is not rounded.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext


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

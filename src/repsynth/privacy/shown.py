"""Bounds as text: rounded towards the safe side, always.

A loss, a δ, an attack's advantage: none is shown smaller than it is. What an attack proves at least, what is left
of a budget, how much noise there is: none is shown larger. A float counts as the decimal number that it prints as
(the shortest one that reads back as the same float), so that a δ of 1e-9 is shown as that; whatever is worked
out is rounded up by more than this may differ. JSON holds all digits of a float, so nothing is rounded there.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext


def at_most(value: float, digits: int = 4) -> str:
    """An upper bound to so many significant digits: never below itself.

    >>> at_most(0.24011, 3), at_most(1.0), at_most(1e-9), at_most(0.99996)
    ('0.241', '1', '1e-09', '1')
    """
    return _significant(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 4) -> str:
    """A lower bound to so many significant digits: never above itself.

    >>> at_least(0.24019, 3), at_least(1.0), at_least(0.0)
    ('0.24', '1', '0')
    """
    return _significant(value, digits, ROUND_FLOOR)


def fixed_at_most(value: float, places: int = 4) -> str:
    """An upper bound to so many decimal places.

    >>> fixed_at_most(1234.00001, 3), fixed_at_most(0.5, 2)
    ('1,234.001', '0.50')
    """
    return _fixed(value, places, ROUND_CEILING)


def fixed_at_least(value: float, places: int = 4) -> str:
    """A lower bound to so many decimal places.

    >>> fixed_at_least(1234.56789, 2)
    '1,234.56'
    """
    return _fixed(value, places, ROUND_FLOOR)


def percent_at_most(value: float, places: int = 1) -> str:
    """An upper bound on a part of a whole.

    >>> percent_at_most(0.12301), percent_at_most(0.5)
    ('12.4%', '50.0%')
    """
    return _percent(value, places, ROUND_CEILING)


def percent_at_least(value: float, places: int = 1) -> str:
    """A lower bound on a part of a whole.

    >>> percent_at_least(0.12399)
    '12.3%'
    """
    return _percent(value, places, ROUND_FLOOR)


def _significant(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(repr(float(value)))
    rounded = _quantized(exact, exact.adjusted() - digits + 1, rounding)
    return f"{float(rounded):.{digits}g}"  # so few digits are those of the float, too


def _fixed(value: float, places: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{_quantized(Decimal(repr(float(value))), -places, rounding):,.{places}f}"


def _percent(value: float, places: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    with localcontext() as context:
        context.prec = 60
        return f"{_quantized(Decimal(repr(float(value))) * 100, -places, rounding):.{places}f}%"


def _quantized(exact: Decimal, exponent: int, rounding: str) -> Decimal:
    with localcontext() as context:
        context.prec = 400  # a float between 1e-308 and 1e308, to a few digits
        return exact.quantize(Decimal(1).scaleb(exponent), rounding=rounding)

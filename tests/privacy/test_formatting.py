"""Bounds as text: never on the wrong side of themselves, and never farther off than the last digit says."""

import ast
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import repsynth
from repsynth.privacy.formatting import (
    fixed_lower,
    fixed_upper,
    lower,
    percent_lower,
    percent_upper,
    upper,
)
from repsynth.privacy.gaussian import advantage, epsilon_of, true_positive_rate

POSITIVE = st.floats(1e-300, 1e300)
PARTS = st.floats(0, 1)


def unit_of(text: str) -> Fraction:
    """One unit of the last digit that is shown."""
    return Fraction(10) ** int(Decimal(text).as_tuple().exponent)


@given(POSITIVE, st.integers(1, 8))
@example(0.1, 4)
@example(0.99999, 4)
@example(9.9995e-10, 3)
def test_significant_digits_err_on_the_safe_side(value: float, digits: int) -> None:
    exact = Decimal(repr(value))
    unit = Fraction(10) ** (exact.adjusted() - digits + 1)
    above, below = Fraction(upper(value, digits)), Fraction(lower(value, digits))
    assert exact <= above < Fraction(exact) + unit
    assert Fraction(exact) - unit < below <= exact
    for shown in (upper(value, digits), lower(value, digits)):
        assert len(Decimal(shown).normalize().as_tuple().digits) <= digits


@given(st.floats(0, 1e9), st.integers(0, 6))
def test_decimal_places_err_on_the_safe_side(value: float, places: int) -> None:
    exact = Fraction(repr(value))
    above, below = (show(value, places).replace(",", "") for show in (fixed_upper, fixed_lower))
    assert exact <= Fraction(above) < exact + unit_of(above)
    assert exact - unit_of(below) < Fraction(below) <= exact
    assert unit_of(above) == unit_of(below) == Fraction(10) ** -places


@given(PARTS, st.integers(0, 4))
def test_percents_err_on_the_safe_side(value: float, places: int) -> None:
    exact = Fraction(repr(value)) * 100
    above, below = (show(value, places).removesuffix("%") for show in (percent_upper, percent_lower))
    assert exact <= Fraction(above) < exact + unit_of(above)
    assert exact - unit_of(below) < Fraction(below) <= exact


@given(POSITIVE, st.integers(1, 8))
def test_what_is_rounded_stays(value: float, digits: int) -> None:
    assert upper(float(upper(value, digits)), digits) == upper(value, digits)


def test_what_is_no_number_is_said() -> None:
    assert (upper(math.inf), lower(0.0), fixed_upper(math.inf), percent_upper(math.nan)) == (
        *("inf", "0"),
        *("inf", "nan"),
    )


@pytest.mark.parametrize("mu", [1e-7, 3.3e-5, 0.0123, 0.2367, 0.7, 1.9, 5.1, 11.3])
def test_what_is_shown_is_never_below_the_truth(mu: float) -> None:
    """In arbitrary precision: the decimal number that a bound prints as, in full, is no smaller than the bound."""
    with mpmath.workdps(60):
        exact = mpmath.mpf(mu)
        assert mpmath.mpf(repr(float(advantage(mu)))) >= 2 * mpmath.ncdf(exact / 2) - 1
        assert float(advantage(mu)) == pytest.approx(float(2 * mpmath.ncdf(exact / 2) - 1), rel=1e-11)
        for rate in (0.001, 0.01, 0.1):
            quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)
            largest = mpmath.ncdf(quantile + exact)
            assert mpmath.mpf(repr(true_positive_rate(mu, rate))) >= largest
            assert true_positive_rate(mu, rate) == pytest.approx(float(largest), rel=1e-11)
        for delta in (1e-5, 3.7e-9):
            epsilon = mpmath.mpf(repr(float(epsilon_of(mu, delta))))
            left = mpmath.ncdf(-epsilon / exact + exact / 2)
            assert left - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / exact - exact / 2) <= mpmath.mpf(
                repr(delta)
            )


BOUND = re.compile(
    r"epsilon|delta|\bmu\b|\brho\b|_mu\b|advantage|tpr|\beps\b|smallest|\bboth\b|spent|remaining|left"
)
ASKED = {"SMALLEST_DELTA", "delta", "asked", "outlier_epsilon", "value"}
"""What a user gave, quoted in an error, and constants."""


def test_no_bound_becomes_text_in_another_way() -> None:
    """No f-string formats a bound by itself: that rounds to the nearest."""
    package, found = Path(repsynth.__file__).parent, []
    for path in sorted(package.rglob("*.py")):
        if path.name == "formatting.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                name = ast.unparse(node.value)
                if BOUND.search(name) and name not in ASKED and re.search("[gf%e]", ast.unparse(node.format_spec)):
                    found.append(f"{path.name}:{node.lineno}: {name}")
    assert not found, found

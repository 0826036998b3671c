"""The noise is what the account says: its scale, its shape, its source."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2, chisquare

from repsynth.errors import ConfigError
from repsynth.mechanism import noise

DRAWS = 20_000


def variance_p_value(draws: np.ndarray, sigma: float) -> float:
    """Two-sided p-value of a chi-square test that the variance is σ² (and 1/12 from rounding)."""
    statistic = float((draws.astype(float) ** 2).sum() / (sigma**2 + 1 / 12))
    tail = chi2.cdf(statistic, len(draws))
    return 2 * min(tail, 1 - tail)


@pytest.mark.parametrize("sigma", [3.0, 250.0, 2.0**29])
def test_the_scale_is_the_claimed_one_and_no_other(sigma: float) -> None:
    """The seed fixes the draws, and they are exact on every machine; with any other seed, each line fails with a
    chance of less than 1e-10: a tenth of σ is 17 standard deviations of the variance."""
    draws = noise.rounded_gaussian(sigma, DRAWS, noise.seeded_entropy(7))
    assert variance_p_value(draws, sigma) > 1e-10
    assert variance_p_value(draws, 0.9 * sigma) < 1e-10
    assert variance_p_value(draws, 1.1 * sigma) < 1e-10


def test_the_shape_is_a_rounded_gaussian() -> None:
    """Fixed by the seed; with any other, each line fails with a chance of less than 1e-10. It tells apart a σ that
    is off by 2 %, and a Gaussian on the integers, which is no rounded one."""
    sigma, reach = 1.7, 6
    draws = noise.rounded_gaussian(sigma, 1_000_000, noise.seeded_entropy(11))
    edges = np.concatenate([[-np.inf], np.arange(-reach, reach) + 0.5, [np.inf]])
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)

    def p_value(masses: np.ndarray) -> float:
        return float(chisquare(counts, masses / masses.sum() * len(draws)).pvalue)

    assert p_value(np.diff(ndtr(edges / sigma))) > 1e-10
    assert p_value(np.diff(ndtr(edges / (1.02 * sigma)))) < 1e-10
    assert p_value(np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))) < 1e-10


def test_arbitrary_precision_decides_as_the_fast_path_does() -> None:
    digits = np.frombuffer(noise.seeded_entropy(3)(8 * 300), dtype="<u8")
    fast = noise.rounded_gaussian(40.0, 300, noise.seeded_entropy(3))
    exact = [noise._decide(40.0, int(d) & (2**63 - 1), noise.seeded_entropy(9)) for d in digits]
    assert np.abs(fast).tolist() == exact


def test_draws_that_floats_cannot_decide_are_decided_exactly() -> None:
    """At this σ most quantiles lie nearer to a half-integer than float error: the slow path must agree
    with a quantile computed in high precision from the same bits."""
    import mpmath

    sigma = 2.0**45
    digits = np.frombuffer(noise.seeded_entropy(5)(8 * 40), dtype="<u8")
    draws = noise.rounded_gaussian(sigma, 40, noise.seeded_entropy(5))
    with mpmath.workprec(300):
        for digit, draw in zip(digits, draws, strict=True):
            tail = (mpmath.mpf(int(digit) & (2**63 - 1)) + mpmath.mpf(0.5)) / 2**64
            quantile = sigma * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)
            assert abs(abs(int(draw)) - quantile) <= 1 + sigma * 2.0**-60 / mpmath.npdf(quantile / sigma)


def test_a_tail_of_zeros_asks_for_more_bits() -> None:
    """All bits zero is a tail probability of less than 2⁻⁶⁴: the draw must go on, not return infinity."""
    supplied = iter([bytes(8), bytes(8), b"\x10" * 8, b"\x20" * 8, b"\x30" * 8])
    draw = noise.rounded_gaussian(1.0, 1, lambda size: next(supplied))
    assert 9 <= abs(int(draw[0])) <= 20


def test_two_draws_differ() -> None:
    assert not np.array_equal(noise.rounded_gaussian(1e6, 50), noise.rounded_gaussian(1e6, 50))


def test_the_event_says_what_was_done() -> None:
    noisy, event = noise.add_gaussian(np.arange(4), name="x", sensitivity=2.0, sigma=8.0)
    assert (event.name, event.sensitivity, event.sigma) == ("x", 2.0, 8.0)
    assert 0.25 <= event.mu < 0.25 * (1 + 1e-12)
    assert noisy.dtype == np.int64


@pytest.mark.parametrize(
    ("sensitivity", "sigma"), [(1.0, 0.0), (1.0, np.inf), (1.0, np.nan), (0.0, 1.0), (1.0, 1e300)]
)
def test_no_noise_is_refused(sensitivity: float, sigma: float) -> None:
    with pytest.raises(ConfigError):
        noise.add_gaussian(np.zeros(1, dtype=np.int64), name="x", sensitivity=sensitivity, sigma=sigma)


def supplied(first: int, then: int) -> noise.Entropy:
    """These 64 bits, and after them nothing but zeros (0) or ones (255)."""
    start = iter([first.to_bytes(8, "little")])
    return lambda size: next(start, bytes([then]) * size)


@pytest.mark.parametrize(
    ("sigma", "k"),
    [
        (0.7, 0),
        (0.7, 3),
        (1.0, 7),
        (1.0, 8),
        (40.0, 0),
        (40.0, 21),
        (40.0, 330),
        (333.3, 1871),
        (1e6, 1_234_567),
        (2.0**36, 2**37),
    ],
)
def test_bits_that_leave_two_integers_open_are_extended_and_no_others_decide(sigma: float, k: int) -> None:
    """The tail probability that separates k from k + 1 lies within a certain digit: what follows decides there,
    and one digit more or less leaves nothing open. Far out a digit spans many integers."""
    import mpmath

    with mpmath.workprec(400):
        tail = mpmath.erfc((k + mpmath.mpf(1) / 2) / (mpmath.mpf(sigma) * mpmath.sqrt(2))) / 2
        digit = int(mpmath.floor(tail * 2**64))
    draws = [
        abs(int(noise.rounded_gaussian(sigma, 1, supplied(digit + more, then))[0]))
        for more, then in ((-1, 0), (-1, 255), (0, 0), (0, 255), (1, 0), (1, 255))
    ]
    far = 2.0**-64 * sigma / (float(tail) * max(k / sigma, 1.0)) > 0.1
    if far:
        assert draws == sorted(draws, reverse=True)
        assert draws[2] > k >= draws[3]
    else:
        assert draws == [k + 1, k + 1, k + 1, k, k, k]


@pytest.mark.parametrize("sign", [0, 2**63])
def test_the_first_bit_is_the_sign(sign: int) -> None:
    (draw,) = noise.rounded_gaussian(100.0, 1, supplied(sign + 2**60, 0))
    assert draw == (-153 if sign else 153), "Φ(−1.534) is a sixteenth"


@pytest.mark.parametrize("utilities", [[0, 1], [5, 0, 3], [0, 0, 0, 0, -7]])
def test_bits_that_leave_two_choices_open_are_extended(utilities: list[int]) -> None:
    """As above: where the sum of the first masses lies within the digit, what follows decides."""
    import mpmath

    with mpmath.workprec(400):
        masses = [mpmath.exp(mpmath.mpf(0.3) * value / (2 * 2)) for value in utilities]
        for k in range(len(utilities) - 1):
            digit = int(mpmath.floor(mpmath.fsum(masses[: k + 1]) / mpmath.fsum(masses) * 2**64))
            found = [
                noise.choose_exponential(
                    np.array(utilities), unit=2, eta=0.3, entropy=supplied(digit + more, then)
                )
                for more, then in ((-1, 255), (0, 255), (1, 0))
            ]
            assert found == [k, k + 1, k + 1]
            below = noise.choose_exponential(np.array(utilities), unit=2, eta=0.3, entropy=supplied(digit, 0))
            assert below == (k if mpmath.fsum(masses[: k + 1]) / mpmath.fsum(masses) * 2**64 > digit else k + 1)


@pytest.mark.parametrize("sigma", [0.3, 1.7, 40.0])
@pytest.mark.parametrize("units", [1, 8, 4096])
def test_a_fraction_with_noise_is_rounded_and_nothing_before_it(sigma: float, units: int) -> None:
    """round(x + N) for a fraction x: its distribution, by a chi-square test. Fixed by the seed; with any other it
    fails with a chance of less than 1e-10."""
    value, draws, reach = 2 * units + (2 * units) // 3, 200_000, 4
    noisy, event = noise.add_gaussian(
        np.full(draws, value), name="x", sensitivity=1.0, sigma=sigma, units=units, entropy=noise.seeded_entropy(3)
    )
    assert event.sigma == sigma
    edges = np.array([-np.inf, *(round(value / units) + sigma * np.arange(-reach, reach + 1) // 1 + 0.5), np.inf])
    masses = np.diff(ndtr((np.unique(edges) - value / units) / sigma))
    counts = np.histogram(noisy, np.unique(edges))[0]
    kept = masses > 1e-4
    expected = masses[kept] / masses[kept].sum() * counts[kept].sum()
    assert chisquare(counts[kept], expected).pvalue > 1e-10


def test_where_floats_do_not_decide_a_fraction_more_bits_do() -> None:
    """The slow way finds what the fast one does."""
    count, sigma = 200, 37.3
    offsets = np.random.default_rng(0).integers(0, 4096, count) / 4096
    digits = np.frombuffer(noise.seeded_entropy(5)(8 * count), dtype="<u8")
    fast = noise.rounded_gaussian(sigma, count, noise.seeded_entropy(5), offsets)
    signs, tails = np.where(digits >> np.uint64(63), -1, 1), digits & np.uint64(2**63 - 1)
    slow = [
        int(sign) * noise._decide(sigma, int(tail), noise.seeded_entropy(1), float(sign * offset))
        for sign, tail, offset in zip(signs, tails, offsets, strict=True)
    ]
    assert fast.tolist() == slow


@pytest.mark.parametrize("sigma", [0.4, 3.0, 1e4])
def test_all_draws_know_of_the_fraction(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that go through arbitrary precision from the start."""
    offsets = np.arange(0, 4096, 16) / 4096
    fast = noise.rounded_gaussian(sigma, len(offsets), noise.seeded_entropy(1), offsets)
    monkeypatch.setattr(noise, "_SHORT_TAIL", 1.0)
    slow = noise.rounded_gaussian(sigma, len(offsets), noise.seeded_entropy(1), offsets)
    assert slow.tolist() == fast.tolist()

"""Time of 100,000 exact noise draws: our rounded Gaussian beside OpenDP's discrete Gaussian, where installed.

python -m studies.benchmarks.noise
"""

import time
from collections.abc import Callable

import numpy as np

from repsynth.mechanism.noise import rounded_gaussian
from repsynth.privacy.gaussian import epsilon_of

DRAWS = 100_000


def timed(name: str, draw: Callable[[], object]) -> float:
    draw()
    start = time.process_time()
    draw()
    seconds = time.process_time() - start
    print(f"{name:44} {seconds:8.3f} s of CPU")
    return seconds


def main() -> None:
    for sigma in (100.0, 2.0**28):
        ours = timed(f"rounded Gaussian, sigma {sigma:g}", lambda sigma=sigma: rounded_gaussian(sigma, DRAWS))
    try:
        import opendp.prelude as dp
    except ImportError:
        print("opendp is not installed; pip install opendp to compare")
        return
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"), size=DRAWS), dp.l2_distance(T=float)
    mechanism = dp.m.make_gaussian(*space, scale=100.0)
    zeros = np.zeros(DRAWS, dtype=np.int64).tolist()
    theirs = timed("OpenDP discrete Gaussian, sigma 100", lambda: mechanism(zeros))
    print(f"ratio {theirs / ours:.0f}")
    mu, delta = 0.178, 4.9e-10
    rho, order = mu**2 / 2, np.linspace(1.01, 2000, 200_000)
    converted = rho * order + (np.log(1 / delta) + (order - 1) * np.log1p(-1 / order) - np.log(order)) / (
        order - 1
    )
    exact = float(epsilon_of(mu, delta))
    print(f"epsilon at mu {mu}, delta {delta:g}: exact {exact:.3f}, via zCDP {converted.min():.3f}")


if __name__ == "__main__":
    main()

"""The cells of the study: what is run, and the address of each result."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

import repsynth
from repsynth.errors import ConfigError

PROTOCOLS = ("sound", "paper")
DATASETS = ("sim", "breast_cancer", "adult", "german_credit")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEEDS = 5
QUICK_DATASETS, QUICK_EPSILONS, QUICK_SEEDS = ("sim", "breast_cancer"), (1.0, 4.0), 2
METHODS = {
    "non-private": "Non-private",
    "uniform": "DP uniform",
    "uniform-split": "DP uniform, split",
    "reps": "REPS",
    "random": "Random weights",
    "removal": "Hard removal",
}

_SHOWN_ONLY = {"__main__.py", "summary.py", "tabulate.py", "figures.py", "drawing.py", "download.py"}


class Cell(msgspec.Struct, frozen=True, order=True):
    """One run of one method: everything that decides its result but the data and the code.

    The non-private method has no budget, so it runs once per seed: its `epsilon` is None.
    """

    protocol: str
    dataset: str
    seed: int
    epsilon: float | None
    method: str

    @property
    def noise_seed(self) -> int:
        """A seed of the cell's own, for noise and sampling."""
        return int.from_bytes(hashlib.sha256(msgspec.json.encode(self)).digest()[:6], "big")

    def address(self, data: bytes) -> str:
        """The name of its result: a hash of the cell, of the data (its digest) and of the code.

        >>> len(Cell("sound", "sim", 0, 1.0, "reps").address(b"digest of a table"))
        24
        """
        return hashlib.sha256(msgspec.json.encode(self) + data + code_digest()).hexdigest()[:24]


def make_grid(
    protocol: str,
    *,
    datasets: Sequence[str] = DATASETS,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = SEEDS,
) -> tuple[Cell, ...]:
    """All cells of a study, those of one split together.

    >>> len(make_grid("sound")), len(make_grid("paper", datasets=["sim"], epsilons=[1.0], seeds=2))
    (420, 12)
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"unknown protocol '{protocol}'; use one of {', '.join(PROTOCOLS)}")
    for name in datasets:
        if name not in DATASETS:
            raise ConfigError(f"unknown dataset '{name}'; use some of {', '.join(DATASETS)}")
    if not 1 <= seeds <= 1000:
        raise ConfigError("the number of seeds must lie between 1 and 1000")
    if not epsilons or not all(0.01 <= epsilon <= 100 for epsilon in epsilons):
        raise ConfigError("every epsilon must lie between 0.01 and 100")
    return tuple(
        Cell(protocol, name, seed, epsilon, method)
        for name in datasets
        for seed in range(seeds)
        for epsilon in (None, *epsilons)
        for method in METHODS
        if (method == "non-private") == (epsilon is None)
    )


@cache
def code_digest() -> bytes:
    """Return a hash of all code that can change a result."""
    package, studies = Path(repsynth.__file__).parent, Path(__file__).parents[1]
    paths = [*package.rglob("*.py"), *package.rglob("*.toml"), *studies.glob("*.py"), *studies.glob("paper/*.py")]
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.name not in _SHOWN_ONLY and path.parent.name != "cli"):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()

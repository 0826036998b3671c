"""The suite draws the same noise each time: whether a test passes must not hang on what was drawn. Processes that
tests start draw afresh, as do all with `--hypothesis-profile=other-examples`.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings

from repsynth.mechanism.noise import seeded_entropy
from repsynth.run import run as pipeline


@contextmanager
def drawn_from(name: str) -> Iterator[None]:
    """Runs, and generators without a seed, draw what follows from this name."""
    if settings.get_current_profile_name() == "other-examples":
        yield
        return
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    entropy = seeded_entropy(seed)

    def random_bits(bits: int) -> int:
        return int.from_bytes(entropy(bits // 8), "little")

    with (
        mock.patch.object(pipeline, "os", SimpleNamespace(urandom=entropy)),
        mock.patch.object(np.random.bit_generator, "randbits", random_bits),
    ):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """By its own name, as tests share it and come in any order."""
    with drawn_from(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with drawn_from(item.nodeid):
        return (yield)

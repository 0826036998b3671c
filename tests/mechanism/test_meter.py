"""The door: nothing passes that was not planned, or that the budget does not cover."""

from dataclasses import replace

import numpy as np
import pytest

from repsynth.data.records import Records
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.mechanism.kernels import Count
from repsynth.mechanism.meter import Meter
from repsynth.privacy.events import Charge
from repsynth.privacy.gaussian import compose

ENGINE = LocalEngine([Records(rows=40, codes={})])


class Unread:
    """An engine that must not be asked."""

    def sum(self, kernel: object) -> None:
        pytest.fail("the data was read")


def test_what_the_budget_does_not_cover_is_not_measured() -> None:
    meter = Meter(Unread(), mu=0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the budget does not cover it"):
        meter.measure(Count(), mu=0.51)
    assert meter.events == []


def test_measurements_add_up_to_the_budget_and_no_further() -> None:
    meter = Meter(ENGINE, mu=0.5)
    meter.measure(Count(), mu=0.3)
    meter.measure(Count(), mu=0.4 * (1 - 1e-12))
    assert compose(event.mu for event in meter.events) <= 0.5 * (1 + 1e-12)
    with pytest.raises(ConfigError, match="the budget does not cover it"):
        meter.measure(Count(), mu=1e-3)
    assert len(meter.events) == 2


@pytest.mark.parametrize(
    ("planned", "kernel"),
    [
        ({}, Count()),
        ({"another": Charge("another", 0.3)}, Count()),
        ({"count": Charge("count", 0.2)}, Count()),
        ({"count": Charge("count", 0.3, weighted=True)}, Count()),
    ],
    ids=["nothing planned", "another planned", "less planned", "weights planned"],
)
def test_what_was_not_planned_is_not_measured(planned: dict[str, Charge], kernel: Count) -> None:
    meter = Meter(Unread(), mu=0.5, planned=planned)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        meter.measure(kernel, mu=0.3)
    assert meter.events == []


def test_who_pays_in_full_is_what_the_kernel_says() -> None:
    meter = Meter(ENGINE, mu=0.5)
    for weighted in (False, True):
        meter.measure(replace(Count(), weighted=weighted), mu=0.3)
    assert [event.weighted for event in meter.events] == [False, True]


def test_a_sum_starts_from_nothing() -> None:
    assert np.array_equal(LocalEngine([]).sum(Count()), [0])

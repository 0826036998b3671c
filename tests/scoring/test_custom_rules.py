"""Rules that somebody else wrote: a wrong one is refused before anything is spent, and on loading a release."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from conftest import ALL_TYPES, make_people

import repsynth
from repsynth.arrays import Floats
from repsynth.errors import ConfigError, ReleaseError
from repsynth.privacy.budget import Budget
from repsynth.privacy.ledger import Ledger
from repsynth.schema import parse_schema
from repsynth.scoring.base import NAT
from repsynth.scoring.weights import RULES, Rule, fault_of, make_weights


class Custom(Rule, frozen=True):
    """A rule as it should be; the others below are wrong in one way each."""

    name: ClassVar[str] = "custom"

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 0, 0.5, 1.0)


class RisesFar(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.where((above > 0) & (above < 100), 0.5, 1.0)


class RisesBriefly(Custom, frozen=True):
    """Between the sixteenths of a nat."""

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above <= 0, 1.0, np.where(np.abs(above - 3.03) < 0.01, 0.9, 0.5))


class RisesAtASpan(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 2, 1.0 if 15 < span < 30 else 0.5, 0.5)


class RisesIfCut(Custom, frozen=True):
    def at_most(self, weight: float) -> Rule:
        return Rising()


class RisesIfStrong(Custom, frozen=True):
    strength: ClassVar[str | None] = "gamma"

    def of_strength(self, strength: float) -> Rule:
        return Rising()


class Rising(Rule, frozen=True):
    name: ClassVar[str] = "rising"

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 2, 1.0, 0.5)


class AboveOne(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(np.abs(above + 0.02) < 0.01, 1.5, np.where(above > -0.02, 0.5, 1.5))


class Negative(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 1000, -0.5, 0.5)


class NoNumber(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 1000, np.nan, 0.5)


class OneForAll(Custom, frozen=True):
    def weight(self, above: Floats, span: float) -> Floats:
        return np.array(0.5)


class NotByDistance(Custom, frozen=True):
    """The guaranteed loss would rest on it."""

    by_distance: ClassVar[bool] = True

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 0, 1 / (1 + span), 1.0)


class FromLowestByDistance(Custom, frozen=True):
    by_distance: ClassVar[bool] = True
    from_lowest: ClassVar[bool] = True


WRONG = {
    RisesFar: "larger weights to larger scores",
    RisesBriefly: "larger weights to larger scores",
    RisesAtASpan: "larger weights to larger scores",
    RisesIfCut: "larger weights to larger scores",
    RisesIfStrong: "larger weights to larger scores",
    AboveOne: "outside of 0 to 1",
    Negative: "outside of 0 to 1",
    NoNumber: "outside of 0 to 1",
    OneForAll: "one weight per score",
    NotByDistance: "distance from the threshold alone",
    FromLowestByDistance: "distance from the threshold alone",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_rule_is_refused_and_nothing_is_spent(
    kind: type[Rule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "custom", kind)
    monkeypatch.setitem(RULES, "rising", Rising)
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-9))
    with pytest.raises(ConfigError, match=WRONG[kind]) as refusal:
        repsynth.synthesize(
            make_people(30), parse_schema(ALL_TYPES), epsilon=1.0, weights="custom", ledger=ledger, dataset="data"
        )
    assert "nothing was spent" in str(refusal.value).lower()
    assert not ledger.balance("data").spendings


def test_weights_never_rise_whatever_the_rule_says() -> None:
    weights = make_weights(Rising(), threshold=0, lowest=0)
    assert np.all(np.diff(weights.of(np.arange(-10, 20) * NAT)) <= 0)


def test_every_rule_that_comes_along_is_one() -> None:
    assert all(fault_of(kind()) is None for kind in RULES.values())


def test_a_release_whose_rule_has_become_a_wrong_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule belongs to whoever loads the release: another one of that name is not the one that was used."""
    monkeypatch.setitem(RULES, "custom", Custom)
    options = {"epsilon": 1.0, "weights": "custom", "model": "naive-bayes"}
    repsynth.synthesize(make_people(300), parse_schema(ALL_TYPES), **options).save(tmp_path / "release")
    assert repsynth.Release.load(tmp_path / "release").rule == Custom()
    for kind in (RisesFar, Negative):
        monkeypatch.setitem(RULES, "custom", kind)
        with pytest.raises(ReleaseError, match=f"its weight rule gives .*{WRONG[kind]}") as refusal:
            repsynth.Release.load(tmp_path / "release")
        assert "\n" not in str(refusal.value)

    class Stronger(Custom, frozen=True):
        def weight(self, above: Floats, span: float) -> Floats:
            return np.where(above > 0, 0.4, 1.0)

    monkeypatch.setitem(RULES, "custom", Stronger)
    with pytest.raises(ReleaseError, match="do not follow from its rule"):
        repsynth.Release.load(tmp_path / "release")

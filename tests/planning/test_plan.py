"""A plan keeps what it promises: the whole budget, and the asked outlier ε."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ALL_TYPES

from repsynth import datasets
from repsynth.errors import ConfigError, SchemaError
from repsynth.mechanism.meter import sigma_for
from repsynth.models.base import Share
from repsynth.models.marginal.model import Aim
from repsynth.models.naive_bayes import NaiveBayes
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import GaussianEvent
from repsynth.privacy.gaussian import compose
from repsynth.privacy.loss import Loss
from repsynth.schema import Boolean, Category, Column, Id, Integer, Schema, parse_schema
from repsynth.scoring.rarity import Rarity

SCHEMA = parse_schema(ALL_TYPES)
SHORT = {"epochs": 1.0, "sampling_rate": 0.5}


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
def test_charges_add_up_to_the_budget_and_never_beyond(model: str) -> None:
    for settings in (Settings.of(epsilon=1.0, model=model), Settings.of(rho=0.3, model=model, public_rows=900)):
        plan = make_plan(SCHEMA, settings)
        assert plan.mu * (1 - 1e-9) <= compose(charge.mu for charge in plan.charges.values()) <= plan.mu


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
def test_what_is_measured_never_exceeds_the_budget_by_a_rounding(model: str) -> None:
    """Whatever the budget is, all roundings of charges, noise and events together are within the reserve."""
    for mu in 0.1 * 1.31 ** np.arange(20):
        plan = make_plan(SCHEMA, Settings.of(mu=float(mu), delta=1e-6, model=model))
        assert plan.loss.mu is not None
        assert plan.loss.mu * (1 + 5e-13) <= plan.mu
        measured = [GaussianEvent(c.name, 3.0, sigma_for(3.0, c.mu), c.weighted) for c in plan.charges.values()]
        assert Loss.of(measured).mu <= plan.mu  # type: ignore[operator]


@pytest.mark.parametrize("model", MODELS)
def test_a_record_at_the_ceiling_loses_no_more_than_was_asked(model: str) -> None:
    knobs = SHORT if model == "autoregressive" else {}
    for asked in (0.9, 1.7) if model == "autoregressive" else (0.9, 1.1, 1.3, 1.5, 1.7):
        settings = Settings.of(epsilon=2.0, delta=1e-6, model=model, outlier_epsilon=asked, **knobs)
        plan = make_plan(SCHEMA, settings)
        assert 0 < plan.ceiling < 1
        assert float(plan.loss.epsilon_at(plan.ceiling, plan.delta)) <= asked
        assert float(plan.loss.epsilon_at(min(plan.ceiling + 2 / 128, 1.0), plan.delta)) > asked
        assert plan.rule.weight(1.0, 1.0) <= plan.ceiling


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
def test_declaring_the_number_of_rows_leaves_more_for_every_other_measurement(model: str) -> None:
    """So it makes no result worse. Weights do not become smaller."""
    for rows in (300, 40_000, 10**6):
        plain, declared = (
            make_plan(SCHEMA, Settings.of(epsilon=1.0, delta=1e-9, model=model, public_rows=known))
            for known in (None, rows)
        )
        assert [*plain.charges] == ["count", *declared.charges]
        for name, charge in declared.charges.items():
            assert charge.mu >= plain.charges[name].mu
            assert (charge.weighted, charge.choice) == (plain.charges[name].weighted, plain.charges[name].choice)
        assert declared.rule.weight(1.0, 1.0) >= plain.rule.weight(1.0, 1.0)
        assert plain.ceiling == declared.ceiling


def test_the_default_weight_is_gentler_for_few_public_rows_unless_one_is_named() -> None:
    def weight(**settings: Any) -> float:
        plan = make_plan(SCHEMA, Settings.of(**{"epsilon": 1.0, "delta": 1e-9, **settings}))
        assert plan.settings.weights == plan.rule  # what a release is checked against
        return float(plan.rule.weight(1.0, 1.0))

    by_rows = [weight(public_rows=rows) for rows in (10, 300, 5_000, 20_000, 50_000, 10**6)]
    assert by_rows == sorted(by_rows, reverse=True)
    assert (by_rows[0], by_rows[-1], weight()) == (0.5, 0.2, 0.2)
    assert any(0.2 < each < 0.5 for each in by_rows)
    assert weight(public_rows=20_000, epsilon=0.5) >= weight(public_rows=20_000)
    assert weight(public_rows=300, outlier_weight=0.2) == 0.2
    assert weight(public_rows=300, weights="targeted") == 0.2
    assert weight(public_rows=300, max_lost_mass=0.1) == 0.2


def test_the_default_weight_follows_the_fraction_of_prior_scores() -> None:
    def prior(fraction: float) -> Any:
        return SimpleNamespace(threshold=SimpleNamespace(fraction=fraction), scorer=Rarity(), check_schema=print)

    settings = Settings.of(epsilon=1.0, delta=1e-9, public_rows=50_000)
    weights = [make_plan(SCHEMA, settings, prior(part)).rule.weight(1.0, 1.0) for part in (0.3, 0.1, 0.01)]
    assert 0.2 <= weights[0] < weights[1] <= weights[2] == 0.5


def test_who_pays_in_full_is_planned_as_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = (Share("sums", 0.5), Share("tally", 0.5, weighted=False))
    monkeypatch.setattr(NaiveBayes, "shares", lambda self, schema: shares)
    plan = make_plan(SCHEMA, Settings.of(epsilon=1.0, model="naive-bayes"))
    assert {name: charge.weighted for name, charge in plan.charges.items()} == {
        **dict.fromkeys(("count", "coarse histograms", "scores", "tally"), False),
        **dict.fromkeys(("refined histograms", "fine histograms", "sums"), True),
    }
    in_full = math.sqrt(sum(charge.mu**2 for charge in plan.charges.values() if not charge.weighted))
    assert plan.loss.floor_mu == pytest.approx(in_full, rel=1e-12)


def test_a_plan_that_leaves_nothing_for_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="less than a twentieth"):
        make_plan(SCHEMA, Settings.of(epsilon=1.0, score_share=0.9, threshold_share=0.09))


@pytest.mark.parametrize(
    "column",
    [
        Category(name="a", values=("x", "\ud800")),
        Boolean(name="\ud800"),
        Integer(name="a", min=0, max=9, special=("\ud800",)),
        Integer(name="a", min=0, max=9, prefix="\ud800"),
    ],
    ids=ascii,
)
def test_text_that_no_release_can_hold_is_refused_before_anything_is_spent(column: Column) -> None:
    label = column.name if isinstance(column, Boolean) else None
    with pytest.raises(SchemaError, match="not valid UTF-8"):
        make_plan(
            Schema(one_row_per_person=True, columns=(column, Boolean(name="other")), label=label),
            Settings.of(epsilon=1.0),
        )


@pytest.mark.parametrize(
    ("model", "rows", "seconds"),
    [
        *(("naive-bayes", 31_655, 0.22), ("mst", 31_655, 0.6), ("aim", 31_655, 2.2)),
        pytest.param("autoregressive", 31_655, 8.7, marks=pytest.mark.slow),
        ("aim", 700, 0.8),
    ],
)
def test_the_seconds_of_a_plan_are_those_of_a_run(model: str, rows: int, seconds: float) -> None:
    """Adult as it was measured on one core; and so few records that aim has nothing to choose."""
    plan = make_plan(
        parse_schema(datasets.schema_text("adult")), Settings.of(epsilon=1.0, delta=1e-9, model=model)
    )
    assert seconds / 2 <= plan.model.resources(plan, rows).seconds <= 2 * seconds


@pytest.mark.parametrize("label", [None, "b"])
def test_the_default_model_is_aim_which_needs_two_columns(label: str | None) -> None:
    """Neither the number of records nor the budget has a say; the settings of the plan name the model."""
    both = Schema(one_row_per_person=True, columns=(Boolean(name="a"), Boolean(name="b")), label=label)
    one = Schema(one_row_per_person=True, columns=(Id(name="person"), Boolean(name="a")))
    for schema, model in ((both, Aim()), (one, NaiveBayes())):
        for rows in (None, 20, 10**6):
            plan = make_plan(schema, Settings.of(epsilon=0.1, public_rows=rows))
            assert plan.settings.model == plan.model == model

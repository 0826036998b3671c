"""The audit: close to the claim where the mechanism is sound, above it where it is not."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow.csv as pacsv
import pytest
from checks import plan_for, repeatable
from conftest import ALL_TYPES, make_people
from scipy.stats import binomtest

from repsynth import datasets
from repsynth.attacks.audit import audit
from repsynth.attacks.statistics import BREACH, DOUBTFUL, HOLDS, Finding, bounds_of, overall
from repsynth.attacks.targets import made_up_table
from repsynth.cli import main
from repsynth.errors import DataError
from repsynth.mechanism import noise
from repsynth.mechanism.kernels import Statistic
from repsynth.mechanism.meter import Meter
from repsynth.models.naive_bayes import WeightedSums
from repsynth.privacy.events import GaussianEvent
from repsynth.schema import Schema
from repsynth.scoring.weights import WeightFunction


@pytest.fixture(autouse=True)
def _the_same_every_time() -> Iterator[None]:
    """No test here draws afresh: none depends on luck."""
    with repeatable(1):
        yield


@pytest.mark.attack
@pytest.mark.smoke
def test_a_sound_mechanism_passes_and_the_audit_is_tight() -> None:
    """Above 0.6 of the claim at 10,000 runs, and outliers are proven to lose less. The claim is by the weight; the
    model clips a record that is ordinary in all columns to less."""
    sim = datasets.load("sim")
    plan = plan_for(sim.schema)
    findings = list(audit(plan, sim.table, runs=10_000))
    assert not any(finding.exceeded for finding in findings)
    assert {f.measurement for f in findings} == {*plan.charges, "all"}
    together = {f.target: f for f in findings if f.measurement == "all"}
    most, least, alone = (together[name] for name in ("most outlying", "least outlying", "canary alone"))
    assert together.keys() == {f.target for f in findings}
    assert together.keys() - {"most outlying", "least outlying", "canary alone"} == {"canary", "missing only"}
    assert least.lower_mu > 0.6 * least.claimed_mu
    assert least.lower_epsilon > 0.6 * least.claimed_epsilon
    assert alone.lower_mu > 0.6 * alone.claimed_mu
    assert most.claimed_mu < 0.6 * least.claimed_mu
    assert most.lower_mu < 0.7 * least.lower_mu
    for finding in together.values():
        assert finding.guaranteed_mu is not None
        assert finding.guaranteed_mu >= finding.claimed_mu * (1 - 1e-9)


@pytest.mark.attack
@pytest.mark.smoke
def test_half_the_noise_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = datasets.load("sim")
    draw = noise.rounded_gaussian
    monkeypatch.setattr(noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma / 2, size, entropy))
    found = list(audit(plan_for(sim.schema), sim.table, runs=10_000))
    broken = {f.measurement for f in found if f.exceeded}
    assert {"coarse histograms", "sums", "all"} <= broken


@pytest.mark.attack
def test_a_sensitivity_too_small_by_the_square_root_of_two_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = datasets.load("sim")
    original = WeightedSums.sensitivity.fget
    assert original is not None
    monkeypatch.setattr(WeightedSums, "sensitivity", property(lambda self: original(self) / 2**0.5))
    found = list(audit(plan_for(sim.schema, weights="uniform"), sim.table, runs=20_000))
    assert {"sums", "all"} <= {f.measurement for f in found if f.exceeded}


def without_noise(self: Meter, statistic: Statistic, *, mu: float) -> np.ndarray:
    measured(self, statistic, mu=mu)
    return self.engine.sum(statistic)


def a_tenth_of_the_noise(self: Meter, statistic: Statistic, *, mu: float) -> np.ndarray:
    noisy = measured(self, statistic, mu=mu)
    exact = self.engine.sum(statistic)
    return exact + (noisy - exact) // 10


def threshold_forgotten(self: Meter, statistic: Statistic, *, mu: float) -> np.ndarray:
    noisy = measured(self, statistic, mu=mu)
    if statistic.name == "scores" and len(self.events) > 1:
        self.events[-1] = GaussianEvent("scores", 1.0, 1e9)
    return noisy


def three_times_the_charge(self: Meter, statistic: Statistic, *, mu: float) -> np.ndarray:
    return measured(replace(self, mu=1e9, planned=None), statistic, mu=3 * mu)


measured = Meter.measure


@pytest.mark.attack
@pytest.mark.parametrize(
    "fault", [without_noise, a_tenth_of_the_noise, threshold_forgotten, three_times_the_charge]
)
def test_faults_in_the_measuring_itself_are_found(fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = datasets.load("sim")
    monkeypatch.setattr(Meter, "measure", fault)
    assert any(f.exceeded for f in audit(plan_for(sim.schema), sim.table, runs=5000))


@pytest.mark.attack
def test_noise_that_repeats_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = datasets.load("sim")
    draw = noise.rounded_gaussian
    monkeypatch.setattr(
        noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma, size, noise.seeded_entropy(0))
    )
    found = [f for f in audit(plan_for(sim.schema), sim.table, runs=100) if f.exceeded]
    assert "noise" in {f.measurement for f in found}


@pytest.mark.attack
def test_weights_above_one_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = datasets.load("sim")
    original = WeightFunction.of
    monkeypatch.setattr(WeightFunction, "of", lambda self, scores: 3 * original(self, scores))
    found = list(audit(plan_for(sim.schema, weights="uniform"), sim.table, runs=5000))
    assert {"sums", "all"} <= {f.measurement for f in found if f.exceeded}


def test_chance_is_not_taken_for_a_leak() -> None:
    generator = np.random.default_rng(1)
    lower, certain = bounds_of(generator.normal(size=5000), generator.normal(size=5000))
    assert certain == 0
    assert lower < 0.05
    assert bounds_of(np.zeros(100), np.zeros(100)) == (0.0, 0.0)


@pytest.mark.slow
def test_the_bound_covers_the_truth() -> None:
    """At μ = 1, the bound at 95 % confidence lies below 1 in about 95 of 100 audits: were they not always the
    same, it would fail with a chance below 1e-9."""
    generator = np.random.default_rng(2)
    below = 0
    for _ in range(600):
        out, present = generator.normal(-0.5, 1, 1000), generator.normal(0.5, 1, 1000)
        below += bounds_of(out, present)[0] <= 1
    assert 530 < below < 600


def test_all_lines_of_a_table_hold_together() -> None:
    """Of tables of 25 lines at claims that are exactly true, one in twenty has a line above its claim, at most;
    with each line at 95 % by itself most have."""
    generator = np.random.default_rng(3)

    def some_line_exceeds(lines: int) -> bool:
        right = generator.normal(0.05, 1, (25, 2, 400))  # μ = 0.1
        found = [bounds_of(-out, present, lines)[0] for out, present in right]
        return any(Finding("r", "a", "m", 0.1, lower, 0.0, 1e-6).verdict != HOLDS for lower in found)

    assert sum(some_line_exceeds(25) for _ in range(60)) <= 8  # of 3 at most to expect
    assert sum(some_line_exceeds(1) for _ in range(60)) >= 25


def test_every_line_has_a_verdict_and_the_worst_is_that_of_all() -> None:
    holds = Finding("r", "a", "m", 1.0, 0.9, 0.8, 1e-6)
    doubtful = replace(holds, lower_mu=1.1)
    breach = replace(doubtful, certain_mu=1.05)
    guaranteed = replace(holds, guaranteed_mu=0.85)
    assert [f.verdict for f in (holds, doubtful, breach, guaranteed)] == [HOLDS, DOUBTFUL, BREACH, DOUBTFUL]
    assert [f.exceeded for f in (holds, doubtful, breach)] == [False, False, True]
    assert (overall([holds, holds]), overall([holds, doubtful]), overall([breach, doubtful])) == (
        *(HOLDS, DOUBTFUL),
        BREACH,
    )


@pytest.mark.attack
def test_more_lines_prove_less_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit tells every attack how many lines it has."""
    sim, told = datasets.load("sim"), []

    def noted(out: np.ndarray, present: np.ndarray, lines: int = 1) -> tuple[float, float]:
        told.append(lines)
        return bounds_of(out, present, lines)

    monkeypatch.setattr("repsynth.attacks.audit.bounds_of", noted)
    found = list(audit(plan_for(sim.schema), sim.table, runs=100))
    assert len(told) == len(found)
    assert set(told) == {len(found) + 1}  # a choice would be one more
    out, present = np.full(100, -1.0), np.repeat([1.0, -1.0], [80, 20])
    exact = binomtest(180, 200, alternative="greater").proportion_ci(0.95).low
    assert bounds_of(out, present)[0] == pytest.approx(2 * NormalDist().inv_cdf(exact), rel=1e-9)
    assert bounds_of(out, present, 25)[0] < bounds_of(out, present)[0]
    assert bounds_of(out, present, 25)[1] == bounds_of(out, present)[1]


@pytest.mark.attack
@pytest.mark.smoke
def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(ALL_TYPES)
    asked = ["audit", "--schema", "schema.toml", "--model", "naive-bayes"]
    assert main([*asked, "--epsilon", "1", "--runs", "500"]) == 0
    printed = capsys.readouterr().out
    assert "No claim was exceeded" in printed
    assert "PRIVATE" not in printed
    pacsv.write_csv(make_people(40), "people.csv")
    assert main([*asked, "people.csv", "--epsilon", "1", "--runs", "500"]) == 0
    assert "PRIVATE" in capsys.readouterr().out
    draw = noise.rounded_gaussian
    monkeypatch.setattr(noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma / 3, size, entropy))
    arguments = [*asked, "--epsilon", "4", "--runs", "5000"]
    assert main(arguments) == 1
    assert "Look at the measurement: " in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["exceeded"] is True
    assert main([*asked, "--epsilon", "4", "--runs", "3"]) == 2


def test_another_table_is_refused_clearly(schema: Schema) -> None:
    with pytest.raises(DataError, match="no column"):
        list(audit(plan_for(schema), make_people(5).drop_columns(["age"]), runs=100))


def test_the_made_up_table_is_nobody_s(schema: Schema) -> None:
    table = made_up_table(schema, 50)
    assert table.num_rows == 50
    assert table.column_names == [column.name for column in schema.columns]

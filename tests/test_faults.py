"""Faults written into the source, each of which a named test notices: a table of what the tests are for.

Other seeded faults are in `test_mutants`, where the check that notices is one that runs on every model. Here it is
a test of the module. `python test_faults.py` prints the table with its outcomes; `make mutants` runs both.
"""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from mutation import Change, outcomes, path_of


class Fault(NamedTuple):
    """A text in a module, what it is replaced by, and the test that notices."""

    name: str
    module: str
    text: str
    wrong: str
    test: str


EXACT = "curator/test_guarantee_exact.py::"
TIGHT = EXACT + "test_the_threshold_lies_above_its_bound_nearly_as_often_as_it_may"
NOISE = "mechanism/test_noise.py::"
OPEN = NOISE + "test_bits_that_leave_two_integers_open_are_extended_and_no_others_decide"
GAUSSIAN = "privacy/test_gaussian.py::"
LOSS = "privacy/test_loss.py::"
NETWORK = "models/test_network.py::"

FAULTS = [
    # The guarantee.
    Fault(
        "the chances of many records are not added up",
        "curator.guarantee",
        "self.often + self.seldom / chance",
        "self.often",
        EXACT + "test_more_records_than_said_reach_a_level_no_more_often_than_they_may",
    ),
    Fault(
        "each number of records has the whole chance",
        "curator.guarantee",
        "self.at_most(chance / 2 / _LOOKED_AT)",
        "self.at_most(chance)",
        EXACT + "test_what_may_fail_has_the_whole_chance_together",
    ),
    Fault(
        "a label's threshold has the whole chance",
        "curator.guarantee",
        "own = label.highest(0.45 * chance",
        "own = label.highest(chance",
        EXACT + "test_a_label_s_number_its_own_threshold_and_the_common_one_share_the_chance",
    ),
    Fault(
        "edges above cannot be reached",
        "curator.guarantee",
        "chance / 2 - float(several @ ndtr((above - room) / noise))",
        "chance / 2",
        EXACT + "test_whichever_edge_above_is_reached_it_counts",
    ),
    Fault(
        "the noise has the whole chance",
        "curator.guarantee",
        "left = chance / 2 -",
        "left = chance -",
        TIGHT,
    ),
    Fault(
        "the threshold has the noise of one bin",
        "curator.guarantee",
        "math.sqrt(MOST_BINS * self.histograms)",
        "1.0",
        TIGHT,
    ),
    Fault(
        "several histograms have the noise of one",
        "curator.guarantee",
        "math.sqrt(MOST_BINS * self.histograms)",
        "math.sqrt(MOST_BINS)",
        EXACT + "test_several_histograms_have_the_noise_of_all_their_bins",
    ),
    Fault(
        "the threshold is at the lower end of its bin",
        "curator.guarantee",
        "self.levels[k] + min(part, 1.0) * (self.levels[k + 1] - self.levels[k])",
        "self.levels[k]",
        TIGHT,
    ),
    Fault(
        "no slack for rounded noise",
        "curator.guarantee",
        "rounding = largest * MOST_BINS * self.histograms / 2",
        "rounding = 0.0",
        EXACT + "test_noise_that_rounding_makes_larger_is_allowed_for",
    ),
    Fault(
        "the smaller factor of a bin's noise",
        "curator.guarantee",
        "else max(1 - fraction, fraction)",
        "else min(1 - fraction, fraction)",
        TIGHT,
    ),
    Fault(
        "of two parts the likelier one alone",
        "scoring.tails",
        "union([part.above[k] for part, k in zip(parts, unique, strict=True)])",
        "np.max([part.above[k] for part, k in zip(parts, unique, strict=True)], axis=0)",
        EXACT + "test_the_larger_of_two_parts_reaches_a_level_as_often_as_either_does",
    ),
    Fault(
        "what lies below the grid is forgotten",
        "scoring.tails",
        "np.maximum(chance - lost, 0.0)",
        "np.maximum(chance + 0 * lost, 0.0)",
        EXACT + "test_what_lies_below_the_grid_is_a_failure",
    ),
    Fault(
        "no slack for rounded parts",
        "scoring.tails",
        "found -= (len(self.columns) + 1) / NAT",
        "pass",
        EXACT + "test_what_is_certain_is_bounded_in_spite_of_rounding",
    ),
    Fault(
        "steps rounded the wrong way",
        "scoring.tails",
        "grid[1:] if side > 0 else grid[:-1]",
        "grid[:-1] if side > 0 else grid[1:]",
        EXACT + "test_the_larger_of_two_parts_is_small_only_if_both_are",
    ),
    Fault(
        "a record's score has the whole chance",
        "curator.guarantee",
        "low = np.concatenate([tails.lower(records, eta / 2)",
        "low = np.concatenate([tails.lower(records, eta)",
        EXACT + "test_score_and_threshold_share_the_chance",
    ),
    # The noise, and who takes part.
    Fault("a short tail of 0", "mechanism.noise", "_SHORT_TAIL = 2.0**-24", "_SHORT_TAIL = 0.0", OPEN),
    Fault("no error margin", "mechanism.noise", "from_half <= error", "from_half < 0 * error", OPEN),
    Fault(
        "no error margin of choices",
        "mechanism.noise",
        "> _CHOICE_ERROR * ends[-1]",
        "> -1",
        NOISE + "test_bits_that_leave_two_choices_open_are_extended",
    ),
    Fault(
        "one random number too many takes part",
        "engines.subsample",
        "drawn < round(",
        "drawn <= round(",
        "engines/test_local.py::test_exactly_so_many_of_all_random_numbers_take_part",
    ),
    # The account.
    Fault(
        "the smallest weight of a stratum",
        "release.account",
        "self.weights.of(self._score_bins.starts) / FULL",
        "self.weights.of(np.append(self._score_bins.starts[1:] - 1, 2**50)) / FULL",
        "release/test_account.py::test_no_score_of_a_stratum_weighs_more_than_the_stratum_says",
    ),
    Fault(
        "the dossier's epsilon rounded down",
        "curator.dossier",
        "np.minimum(np.searchsorted(grid, influence), len(grid) - 1)",
        "np.maximum(np.searchsorted(grid, influence) - 1, 0)",
        "curator/test_dossier.py::test_no_epsilon_is_rounded_down",
    ),
    Fault(
        "delta without its error",
        "privacy.gaussian",
        "return np.clip(delta + error, 0.0, 1.0)",
        "return np.clip(delta, 0.0, 1.0)",
        GAUSSIAN + "test_no_delta_is_below_the_exact_one",
    ),
    Fault(
        "composition rounded down",
        "privacy.gaussian",
        "for mu in mus)) * (1 + 1e-15)",
        "for mu in mus)) * (1 - 1e-15)",
        GAUSSIAN + "test_a_composition_is_no_less_than_the_exact_one",
    ),
    Fault(
        "no reserve for the roundings of charges",
        "planning.plan",
        "math.sqrt(share) * (1 - 1e-12)",
        "math.sqrt(share)",
        "planning/test_plan.py::test_what_is_measured_never_exceeds_the_budget_by_a_rounding",
    ),
    Fault(
        "no reserve for numerical composition",
        "privacy.pld",
        "_COMPOSITION_ERROR = 1e-12",
        "_COMPOSITION_ERROR = 0.0",
        LOSS + "test_the_error_of_numerical_composition_is_taken_off_delta",
    ),
    Fault(
        "influence rounded down in the account",
        "privacy.loss",
        "math.ceil(weight * WEIGHT_STEPS)",
        "math.floor(weight * WEIGHT_STEPS)",
        LOSS + "test_an_influence_is_never_rounded_down",
    ),
    Fault(
        "influence rounded down in its table",
        "privacy.loss",
        "np.ceil(np.clip(",
        "np.floor(np.clip(",
        LOSS + "test_an_influence_is_never_rounded_down",
    ),
    Fault(
        "a ledger's tolerance of 1e-4",
        "privacy.balance",
        "_ROUNDING = 1e-10",
        "_ROUNDING = 1e-4",
        "privacy/test_ledger.py::test_a_limit_is_exceeded_by_the_last_digits_of_a_rounding_at_most",
    ),
    # Training.
    Fault(
        "gradients bounded at full weight",
        "models.network.gradients",
        "<= (weights * unit) ** 2",
        "<= (FULL * unit) ** 2",
        NETWORK + "test_a_record_whose_clip_fails_has_no_more_than_its_own_weight",
    ),
    Fault(
        "the gain left out of the norm",
        "models.network.gradients",
        "squares.sum(axis=0) + gains**2 <=",
        "squares.sum(axis=0) <=",
        NETWORK + "test_the_gain_counts_in_the_norm",
    ),
    Fault(
        "no room for the gain",
        "models.network.gradients",
        "weights * (math.sqrt(1 - GAIN**2) * unit * _SLACK)",
        "weights * (unit * _SLACK)",
        NETWORK + "test_the_bound_holds_even_if_the_clip_does_not",
    ),
]


def changes() -> list[Change]:
    """What is run: the source with each fault, and its test."""
    found = []
    for fault in FAULTS:
        module = f"repsynth.{fault.module}"
        source = path_of(module).read_text().replace(fault.text, fault.wrong)
        found.append(Change(fault.name, module, source, (f"tests/{fault.test}",)))
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_fault_is_still_in_the_code_that_runs(fault: Fault) -> None:
    """A text that is gone, or that stands in two places, is no fault; nor is a name that is gone a test."""
    assert path_of(f"repsynth.{fault.module}").read_text().count(fault.text) == 1
    file, _, name = fault.test.partition("::")
    assert f"def {name}(" in (Path(__file__).parent / file).read_text()


@pytest.mark.slow
def test_every_fault_is_noticed_by_its_test() -> None:
    """In processes of their own, which hold nothing of repsynth before."""
    told = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True).stdout
    outcomes = [line.split()[0] for line in told.splitlines()]
    assert outcomes == ["caught"] * len(FAULTS), told


def main() -> None:
    """Print which test notices which fault."""
    tests = {fault.name: fault.test.partition("::")[2] for fault in FAULTS}
    for change, outcome in outcomes(changes()):
        print(f"{outcome:9}{change.name:50} by {tests[change.name]}", flush=True)


if __name__ == "__main__":
    main()

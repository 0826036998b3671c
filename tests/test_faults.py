"""Faults in the source, each of which a named test notices.

A fault names a function and a node of its syntax tree, so code can be moved within a function and reformatted.
Faults that a check of every model notices are in `test_mutants`. `python test_faults.py` prints all outcomes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mutation import Change, Server, is_inside, path_of, replaced

FRESH = {"io/test_alone.py"}
"""Files that start threads of polars as they are collected, which a forked process does not have."""


class Fault(NamedTuple):
    """A node in a function, class or module, what replaces it, and the test that notices."""

    name: str
    where: str
    find: str
    put: str
    test: str

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    @property
    def change(self) -> Change:
        module, _, scope = self.where.partition(":")
        source = path_of(f"repsynth.{module}").read_text()
        changed = replaced(source, scope, self.find, self.put)
        inside = is_inside(source, scope) and self.file not in FRESH
        return Change(self.name, f"repsynth.{module}", changed, (f"tests/{self.test}",), inside=inside)


EXACT = "curator/test_guarantee_exact.py::"
TIGHT = EXACT + "test_the_threshold_lies_above_its_bound_nearly_as_often_as_it_may"
NOISE = "mechanism/test_noise.py::"
OPEN = NOISE + "test_bits_that_leave_two_integers_open_are_extended_and_no_others_decide"
GAUSSIAN = "privacy/test_gaussian.py::"
LOSS = "privacy/test_loss.py::"
BOUND = "privacy/test_adaptive_filter.py::"
NETWORK = "models/test_network.py::"
PLACES = "io/test_places.py::"
DATABASES = "io/test_databases.py::"
SELECTION = "curator/test_selection.py::"
MEASURE = "curator/test_measure.py::"
CLUSTERS = "engine/test_clusters.py::"
SAME_BITS = CLUSTERS + "test_the_release_is_the_same_bit_for_bit"
REFUSED = CLUSTERS + "test_a_sum_is_refused_unless_it_is_one_of_all_parts"
OF_PERSONS = "engine/test_cluster_persons.py::"
PERSONS = "io/test_persons.py::"
ALONE = "io/test_alone.py::"
RUNS = "run/test_person_runs.py::"
BY_LABEL = "scoring/test_threshold_by_label.py::"
ATTACKED = "attacks/test_person_attacks.py::"
PERSON_BOUNDS = "curator/test_guarantee_of_persons.py::"
REPLAY = RUNS + "test_without_a_person_nothing_moves_by_more_than_is_charged"
LOOKS = "columns/test_looks_of_a_run.py::"
PAIRWISE = "scoring/test_pairwise.py::"

FAULTS = [
    Fault(
        "a ceiling keeps the outlier epsilon without the cost of the schema",
        "release.verify:_check_outliers",
        "Loss.of(events).after(Loss.of_schema(plan.schema), plan.delta)",
        "Loss.of(events)",
        MEASURE + "test_a_ceiling_must_keep_the_outlier_epsilon_with_the_cost_of_the_schema",
    ),
    Fault(
        "the explorer's grid covers every table",
        "report.explore:_Plans._trained",
        "look_shares(self.schema) or self.schema.measured is not None",
        "False",
        "report/test_explore.py::test_a_trained_plan_that_the_grid_does_not_cover_is_refused",
    ),
    # What a hostile file, or a cluster that reads a part again, could change.
    Fault(
        "a guarantee holds whatever the schema was measured to be",
        "curator.guarantee:why_none",
        "release.schema.measured is not None",
        "False",
        MEASURE + "test_nothing_is_guaranteed_before_a_run_with_a_measured_schema",
    ),
    Fault(
        "weights are public although the schema was measured",
        "scoring.transfer:weights_are_public",
        "prior is not None and schema.measured is None",
        "prior is not None",
        MEASURE + "test_nothing_is_guaranteed_before_a_run_with_a_measured_schema",
    ),
    Fault(
        "the cells of rows without an id may change when a part is read again",
        "engine.persons:PersonRows.in_order",
        "(*self.codes.values(), self.states)",
        "(self.states,)",
        OF_PERSONS + "test_a_part_that_is_another_when_it_is_read_again_is_refused",
    ),
    Fault(
        "gains of pairs are taken from the file",
        "scoring.pairwise:Pairwise.load",
        "np.abs(a - b).max() <= NAT // 1000",
        "True",
        PAIRWISE + "test_a_file_that_says_otherwise_is_refused",
    ),
    Fault(
        "a threshold is taken from the file",
        "scoring.threshold:or_safer",
        "max(threshold.value, again.value)",
        "threshold.value",
        "release/test_ties.py::test_of_two_thresholds_within_rounding_the_larger_counts",
    ),
    # Numbers that are shown.
    Fault(
        "a person with several rows has their number times the epsilon",
        "privacy.gaussian:group_epsilon",
        "float(epsilon_of(records * mu, delta))",
        "records * float(epsilon_of(mu, delta))",
        GAUSSIAN + "test_a_group_of_records_has_so_many_times_the_mu",
    ),
    # Scores by pairs of columns, and what is said of who stands out.
    Fault(
        "pairs of columns may close a cycle",
        "scoring.pairwise:PairChoice.utilities",
        "_connected([pairs[k] for k in chosen], pair)",
        "pair in [pairs[k] for k in chosen]",
        PAIRWISE + "test_no_pair_closes_a_cycle",
    ),
    Fault(
        "the lowest score is not the lowest",
        "scoring.pairwise:PairwiseScore.lowest",
        "gain if leaf == pair[1] else gain.T",
        "gain",
        PAIRWISE + "test_the_lowest_score_is_that_of_some_record",
    ),
    Fault(
        "tables of pairs share the noise of one",
        "scoring.pairwise:Pairwise.measure",
        "tables.sensitivity",
        "1.0",
        PAIRWISE + "test_gains_are_shrunk_by_the_noise_that_their_tables_have",
    ),
    Fault(
        "an audit attacks another choice of pairs than was made",
        "scoring.pairwise:PairwiseScore.kernels",
        "len(self.chosen)",
        "1",
        PAIRWISE + "test_the_choice_that_an_audit_attacks_is_the_one_that_was_made",
    ),
    Fault(
        "a file may have pairs of columns that no run chooses",
        "scoring.pairwise:Pairwise.load",
        "_connected(pairs[:k], pair)",
        "False",
        PAIRWISE + "test_pairs_that_close_a_cycle_are_refused",
    ),
    Fault(
        "the fraction of outliers is surer than anybody can be",
        "release.account:_cut",
        "math.sqrt(float(share.prod()))",
        "0.0 * math.sqrt(float(share.prod()))",
        "release/test_account.py::test_the_published_fraction_covers_lumps_that_histograms_do_not_show",
    ),
    # Looks: the histograms that later measurements refine, with weights.
    Fault(
        "a look is paid for one column",
        "scoring.stage:WeightedHistograms.sensitivity",
        "math.sqrt(len(self.bins))",
        "1.0",
        LOOKS + "test_a_record_adds_its_weight_to_one_cell_of_each_column",
    ),
    Fault(
        "looks forget the weights",
        "scoring.stage:WeightedHistograms.total",
        "self.weights.of(self.score.of(records)).astype(np.float64)",
        "np.full(records.rows, float(FULL))",
        LOOKS + "test_a_record_adds_its_weight_to_one_cell_of_each_column",
    ),
    Fault(
        "a look counts a record in two cells",
        "scoring.stage:WeightedHistograms.total",
        "np.bincount(bins.of(records), weights, minlength=bins.count)",
        "np.bincount(np.append(bins.of(records), 0 * bins.of(records)), np.tile(weights, 2), bins.count)",
        LOOKS + "test_a_record_adds_its_weight_to_one_cell_of_each_column",
    ),
    Fault(
        "a look without weights claims them",
        "scoring.stage:_measure_look",
        "WeightedHistograms(bins, score, weights, name)",
        "ColumnHistograms(bins, name, weighted=True)",
        LOOKS + "test_without_an_outlier_no_look_moves_by_more_than_its_weight",
    ),
    Fault(
        "a look is weighted by scores that no threshold has moved",
        "scoring.stage:measure_looks",
        "_measure_look(meter, histograms, name, plan.charges[name], score, weights)",
        "_measure_look(meter, histograms, name, plan.charges[name], getattr(score, 'score', score), weights)",
        LOOKS + "test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known",
    ),
    Fault(
        "a look shows which cells are empty",
        "scoring.stage:_measure_look",
        "meter.measure(statistic, mu=charge.mu)",
        "meter.measure(statistic, mu=charge.mu) * (meter.engine.sum(statistic) != 0)",
        LOOKS + "test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known",
    ),
    Fault(
        "a look has half the noise",
        "scoring.stage:_measure_look",
        "meter.measure(statistic, mu=charge.mu)",
        "meter.measure(statistic, mu=2 * charge.mu)",
        LOOKS + "test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known",
    ),
    Fault(
        "a look states half its noise",
        "scoring.stage:_measure_look",
        "sigma_for(statistic.sensitivity, charge.per_row)",
        "sigma_for(statistic.sensitivity, charge.per_row) / 2",
        LOOKS + "test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known",
    ),
    Fault(
        "a look is not charged",
        "scoring.stage:_measure_look",
        "meter.measure(statistic, mu=charge.mu)",
        "meter.engine.sum(statistic)",
        LOOKS + "test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known",
    ),
    Fault(
        "the budget forgets the looks",
        "planning.plan:make_charges",
        "[*shares.values(), *looks.values()]",
        "[*shares.values()]",
        "planning/test_plan.py::test_charges_add_up_to_the_budget_and_never_beyond",
    ),
    Fault(
        "a look divides cells by their true counts",
        "scoring.stage:_measure_look",
        "histograms.to_divide",
        "Histograms(histograms.bins, meter.engine.sum(ColumnHistograms(histograms.bins)), 1e-6, 1.0).to_divide",
        LOOKS + "test_the_cells_of_a_look_follow_from_what_was_released",
    ),
    Fault(
        "the first cells follow from the true number of records",
        "scoring.stage:measure_columns",
        "first_cells(schema, rows=rows, sigma=sigma)",
        "first_cells(schema, rows=float(meter.engine.sum(Count())[0]), sigma=sigma)",
        LOOKS + "test_the_cells_of_a_look_follow_from_what_was_released",
    ),
    Fault(
        "a record counts twice in a coarse histogram",
        "columns.adaptive_histogram:ColumnHistograms.total",
        "bins.of(records)",
        "np.repeat(bins.of(records), 2)",
        "columns/test_adaptive_histogram.py::test_each_record_adds_one_to_one_cell_of_every_column",
    ),
    Fault(
        "the influence of a record is that of a score that no threshold has moved",
        "scoring.stage:StageOne.influence",
        "self.score",
        "self.unmoved_score",
        BY_LABEL + "test_no_record_has_a_larger_share_in_a_weighted_measurement_than_its_influence",
    ),
    Fault(
        "looks are told on another grid than they are measured on",
        "scoring.stage:WeightedHistograms",
        "unit: int = FULL",
        "unit: int = 2 ** 22",
        "release/test_account.py::test_sensitivity_and_noise_are_told_in_records",
    ),
    Fault(
        "looks of unknown columns are loaded",
        "columns.adaptive_histogram:load_look",
        "require(known, 'its histograms refine other columns than it has')",
        "pass",
        "release/test_looks.py::test_forged_arrays_of_the_looks_are_refused",
    ),
    Fault(
        "cells that are not parts of earlier ones are loaded",
        "columns.adaptive_histogram:load_look",
        "inside and finer.numbers <= MOST_FINE_CELLS",
        "finer.numbers <= MOST_FINE_CELLS",
        "release/test_looks.py::test_cells_that_cross_earlier_ones_are_refused",
    ),
    Fault(
        "a release need not have spent its budget",
        "release.verify:_check_charges",
        'require(same, "its charges do not match its settings")',
        "pass",
        "release/test_ties.py::test_a_release_has_spent_all_of_its_budget",
    ),
    Fault(
        "a release need not declare its unit of privacy",
        "release.verify:_schema",
        "require(declared, 'its schema does not declare the unit of privacy')",
        "pass",
        "release/test_release.py::test_a_release_must_declare_its_unit_of_privacy",
    ),
    Fault(
        "a ledger of another version is read",
        "privacy.ledger:_begin",
        "version != VERSION",
        "version > VERSION",
        "privacy/test_ledger.py::test_a_ledger_of_another_version_is_refused_and_left_as_it_is",
    ),
    Fault(
        "a label's tables need no clip",
        "models.marginal.release:_statistic",
        'require(not of_label, "its label\'s tables have no clip")',
        "pass",
        "models/test_label_tables.py::test_a_clip_that_a_run_could_not_have_is_refused",
    ),
    # Several rows per person.
    Fault(
        "the factor is forgotten",
        "io.records:factors_of",
        "np.where(rows > most, UNITS * most // np.maximum(rows, 1), UNITS)",
        "np.full(len(rows), UNITS)",
        REPLAY,
    ),
    Fault(
        "the factor is rounded up",
        "io.records:factors_of",
        "UNITS * most // np.maximum(rows, 1)",
        "-(-UNITS * most // np.maximum(rows, 1))",
        PERSONS + "test_all_rows_of_a_person_count_as_no_more_than_allowed",
    ),
    Fault(
        "each row has a fingerprint of its own",
        "io.persons:Fingerprints._some",
        "lengths.astype(np.uint64)",
        "np.arange(len(lengths), dtype=np.uint64)",
        PERSONS + "test_rows_are_counted_by_the_text_of_the_id",
    ),
    Fault(
        "the length of an id has no say",
        "io.persons:Fingerprints._some",
        "key[1][:, None]",
        "0 * key[1][:, None]",
        PERSONS + "test_two_ids_share_a_number_as_often_as_is_claimed",
    ),
    Fault(
        "a guarantee where the threshold was fitted",
        "curator.guarantee:why_none",
        "READABLE",
        "READABLE / 10",
        BY_LABEL + "test_nothing_is_guaranteed_where_the_threshold_was_fitted",
    ),
    Fault(
        "all labels have the noise of one",
        "scoring.threshold:_fit_by_label",
        "sigma * math.sqrt(len(noisy))",
        "sigma",
        BY_LABEL + "test_the_error_of_a_fitted_fraction_is_its_spread",
    ),
    Fault(
        "edges that coincide lie above the records",
        "scoring.threshold:choose_score_bins",
        "_apart(edges)",
        "edges + np.arange(len(edges))",
        BY_LABEL + "test_where_most_records_are_alike_not_all_of_them_are_outliers",
    ),
    Fault(
        "a file says whether each label has a threshold",
        "scoring.threshold:or_safer",
        "(by is not None) not in {_tells_labels(label, off * rows / sigma) for off in (1 - 1e-09, 1 + 1e-09)}",
        "False",
        "release/test_ties.py::test_whether_each_label_has_a_threshold_is_not_the_files_to_say",
    ),
    Fault(
        "a seed of a single random byte for all noise",
        "run.run:run",
        "os.urandom if noise_seed is None else seeded_entropy(noise_seed)",
        "seeded_entropy(os.urandom(1)[0] if noise_seed is None else noise_seed)",
        "run/test_pipeline.py::test_all_noise_is_the_operating_systems_own_unless_a_seed_is_asked_for",
    ),
    Fault(
        "the key is known",
        "engine.local:Persons.counted",
        "os.urandom",
        "bytes",
        PERSONS + "test_keys_are_fresh",
    ),
    Fault(
        "how many rows count is taken from the data",
        "engine.local:PersonTable.encode",
        "self.person.rows",
        "int(self.persons.rows_of(found).max())",
        REPLAY,
    ),
    Fault(
        "what was counted is not compared with what was read",
        "engine.local:Persons.check",
        "bool(np.any(self._left))",
        "False",
        PERSONS + "test_a_table_that_changed_since_it_was_counted_is_refused",
    ),
    Fault(
        "all rows without an id are one person's",
        "engine.local:Persons.rows_of",
        "1",
        "np.sum(found < 0)",
        PERSONS + "test_rows_are_counted_by_the_text_of_the_id",
    ),
    Fault(
        "chunks forget what their rows count",
        "engine.column_store:Codes.sum.total",
        "chunk.factor",
        "4096",
        REPLAY,
    ),
    Fault(
        "rows take part one by one",
        "engine.local:PersonHeld.sampled",
        "takes_part[self.persons]",
        "takes_part[np.arange(len(self.persons)) % self.count]",
        RUNS + "test_persons_take_part_with_all_their_rows_or_none",
    ),
    Fault(
        "rows of nobody share a place",
        "engine.local:Persons.places_of",
        "ALONE + start",
        "ALONE",
        PERSONS + "test_a_place_is_that_of_the_first_row_in_the_table",
    ),
    Fault(
        "rows of nobody share a place with somebody",
        "engine.local:Persons.places_of",
        "ALONE + start",
        "start",
        PERSONS + "test_a_place_is_that_of_the_first_row_in_the_table",
    ),
    Fault(
        "a training forgets what rows count",
        "engine.local:PersonHeld.sum",
        "int(factor)",
        "UNITS",
        RUNS + "test_an_audit_of_a_training_samples_persons",
    ),
    Fault(
        "an audit samples the rows of a person one by one",
        "attacks.audit:training_ratios",
        "np.repeat(np.arange(runs), 2)",
        "np.arange(2 * runs)",
        RUNS + "test_an_audit_of_a_training_samples_persons",
    ),
    # Persons on clusters.
    Fault(
        "each part counts its own persons only",
        "engine.persons:SplitRows.__call__",
        "(rows.prints.first >> np.uint64(32)) * places >> np.uint64(32)",
        "rows.prints.first * np.uint64(0) + np.uint64(number % self.places)",
        OF_PERSONS + "test_the_release_is_that_of_one_process",
    ),
    Fault(
        "a row without an id goes where its number says",
        "engine.persons:SplitRows.__call__",
        "number % self.places",
        "np.flatnonzero(rows.states) % self.places",
        OF_PERSONS + "test_rows_of_a_person_meet_in_one_place_and_the_others_stay_with_their_part",
    ),
    Fault(
        "a key for each worker",
        "engine.persons:EncodePersons.of",
        "Expanded(self.seed)",
        "__import__('os').urandom",
        OF_PERSONS + "test_all_rows_of_a_person_count_as_so_many_at_most",
    ),
    Fault(
        "all runs on clusters have one key",
        "engine.clusters:ClusterEngine.on",
        "os.urandom(SEED_BYTES)",
        "bytes(range(SEED_BYTES))",
        OF_PERSONS + "test_all_parts_have_one_key_and_each_run_its_own",
    ),
    Fault(
        "a key that depends on which ids come first",
        "io.persons:Expanded.__call__",
        "self._stream.digest(self._given)[self._given - count:]",
        "self._stream.digest(count)",
        PERSONS + "test_a_seed_gives_the_same_key_however_long_the_ids_are",
    ),
    Fault(
        "workers forget the factor",
        "engine.persons:_by_factor",
        "int(factor)",
        "UNITS",
        OF_PERSONS + "test_all_rows_of_a_person_count_as_so_many_at_most",
    ),
    Fault(
        "workers count ids that were not read in full",
        "engine.persons:PersonRows.factors",
        "np.where(self.states == UNREAD, 0, UNITS)",
        "np.full(len(self.states), UNITS)",
        OF_PERSONS + "test_all_rows_of_a_person_count_as_so_many_at_most",
    ),
    Fault(
        "a place counts a part twice",
        "engine.persons:Settle.__call__",
        "[message.part for message in ordered] != list(range(self.parts))",
        "{message.part for message in ordered} != set(range(self.parts))",
        OF_PERSONS + "test_a_place_counts_each_part_once",
    ),
    Fault(
        "a place loses the rows of a part",
        "engine.persons:Settle.__call__",
        "[message.rows for message in ordered]",
        "[message.rows for message in ordered[1:]]",
        OF_PERSONS + "test_the_release_is_that_of_one_process",
    ),
    Fault(
        "persons of a part that changed leave no trace",
        "engine.persons:SplitRows.__call__",
        "(persons.prints.first, persons.prints.second, persons.rows, nobody.in_order())",
        "(without_id,)",
        OF_PERSONS + "test_a_part_that_is_another_when_it_is_read_again_is_refused",
    ),
    Fault(
        "a part may have more rows of the same persons when it is read again",
        "engine.persons:SplitRows.__call__",
        "(persons.prints.first, persons.prints.second, persons.rows, nobody.in_order())",
        "(persons.prints.first, persons.prints.second, without_id)",
        OF_PERSONS + "test_a_part_that_is_another_when_it_is_read_again_is_refused",
    ),
    Fault(
        "a part that changed is taken for the one from before",
        "engine.persons:Settle.__call__",
        "(message.digest for message in ordered)",
        "(b'' for message in ordered)",
        OF_PERSONS + "test_a_part_that_is_another_when_it_is_read_again_is_refused",
    ),
    Fault(
        "a part may have seen another version of the table",
        "engine.persons:OfVersion.__call__",
        "records.version != self.version",
        "False",
        OF_PERSONS + "test_a_part_of_another_version_is_refused_at_any_later_time",
    ),
    Fault(
        "a task shows its key",
        "engine.persons:EncodePersons",
        "seed: bytes = field(repr=False)",
        "seed: bytes",
        OF_PERSONS + "test_nobody_is_shown_the_key_or_a_fingerprint",
    ),
    Fault(
        "noise is that of a row",
        "mechanism.meter:Meter.measure",
        "statistic.sensitivity * self.engine.rows_per_person",
        "statistic.sensitivity",
        REPLAY + "[3-naive-bayes]",
    ),
    Fault(
        "a choice is that of a row",
        "mechanism.meter:Meter.choose",
        "choice.unit * units * self.engine.rows_per_person",
        "choice.unit * units",
        RUNS + "test_a_choice_is_as_blurred_as_a_person_can_move_it",
    ),
    Fault(
        "a training is that of rows",
        "mechanism.meter:Meter.train",
        "rounds.sensitivity * self.engine.rows_per_person",
        "rounds.sensitivity",
        RUNS + "test_a_training_is_planned_for_persons",
    ),
    Fault(
        "fractions are cut off before the noise",
        "mechanism.noise:add_gaussian",
        "(values % units).ravel() / units",
        "0.0 * (values % units).ravel()",
        NOISE + "test_a_fraction_with_noise_is_rounded_and_nothing_before_it",
    ),
    Fault(
        "a plan for rows serves persons",
        "mechanism.meter:Meter._check",
        "charge.rows == self.engine.rows_per_person",
        "charge.rows >= 1",
        RUNS + "test_a_plan_for_rows_is_not_carried_out_on_persons",
    ),
    Fault(
        "nobody is ever taken for another",
        "privacy.loss:Loss.of_schema",
        "0.0 if schema.person is None else COLLISION",
        "0.0",
        RUNS + "test_a_person_pays_the_budget_and_the_chance_of_being_taken_for_another",
    ),
    Fault(
        "only the first 64 bytes of an id are hashed",
        "io.persons:Fingerprints._some",
        "-(-int(lengths.max()) // _LIMB)",
        "min(-(-int(lengths.max()) // _LIMB), 16)",
        PERSONS + "test_ids_that_differ_only_far_behind_are_two_persons",
    ),
    Fault(
        "a ledger adds up rows and persons",
        "privacy.ledger:_refuse_other_units",
        "any((entry.get('person') != column for entry in _reserved(connection, dataset)))",
        "False",
        RUNS + "test_a_ledger_keeps_rows_and_persons_apart",
    ),
    Fault(
        "a dossier gives a person the loss of a row",
        "curator.dossier:_Owners.together",
        "np.minimum(of_person / self.person.rows, 1.0)[self.places]",
        "of_rows",
        RUNS + "test_a_dossier_gives_each_person_their_own_loss",
    ),
    Fault(
        "a person's own bound is that of their last row",
        "report.own_bound:_together",
        "factor * int(weights.sum()) / (UNITS * schema.person.rows)",
        "float(weights[-1])",
        "report/test_own_bound.py::test_a_person_with_several_rows_has_the_bound_of_the_dossier_or_a_larger_one",
    ),
    Fault(
        "rows are evaluated where persons are protected",
        "evaluation.inputs:_drawn",
        "some_rows(records.whose.places, person.rows, np.random.default_rng(5)) & counts",
        "counts",
        "evaluation/test_evaluate.py::test_with_persons_the_release_is_compared_with_persons",
    ),
    Fault(
        "intervals count the rows of a person in full",
        "release.accuracy:Expected.covered",
        "records.whose.factors.astype(np.float64)",
        "np.ones(records.rows)",
        "evaluation/test_evaluate.py::test_intervals_of_a_release_hold_what_persons_are_like",
    ),
    Fault(
        "a loaded release may claim the sensitivity of a row",
        "release.verify:_check_kernels",
        "kernels[event.name].sensitivity * stage.schema.rows_per_person",
        "kernels[event.name].sensitivity",
        RUNS + "test_a_release_that_claims_less_than_persons_pay_is_refused",
    ),
    Fault(
        "scores may come from a release that claims the sensitivity of a row",
        "release.verify:_check_kernels",
        "kernels[event.name].sensitivity * stage.schema.rows_per_person",
        "kernels[event.name].sensitivity",
        RUNS + "test_scores_from_a_release_that_claims_less_are_refused",
    ),
    Fault(
        "an attacker of persons takes the noise for that of rows",
        "attacks.traced_run:WatchedMeter.measure",
        "statistic.sensitivity * self.engine.rows_per_person",
        "statistic.sensitivity",
        ATTACKED + "test_the_likelihood_ratio_is_as_good_as_the_account_says",
    ),
    Fault(
        "a target's rows are not all left out",
        "attacks.traced_run:observe",
        "present[victims.owners.target]",
        "present[victims.owners.target] | (np.arange(victims.targets.rows) % 3 == 0)",
        ATTACKED + "test_a_watched_run_is_a_run",
    ),
    Fault(
        "an attacked person's influence is that of the rows they have, whatever these count",
        "attacks.targets:Owners.influence",
        "self.shares * of_rows",
        "of_rows",
        ATTACKED + "test_a_target_is_a_person_with_all_their_rows",
    ),
    Fault(
        "people of the table are taken for people from outside",
        "attacks.targets:_others",
        "given.take(~known)",
        "given",
        ATTACKED + "test_persons_of_the_holdout_who_are_in_the_table_are_left_out",
    ),
    # A measured schema.
    Fault(
        "a count of one is taken to need a whole unit more",
        "privacy.events:SelectionEvent.failure",
        "1.5",
        "1",
        SELECTION + "test_a_count_of_one_is_shown_as_often_as_the_failure_says",
    ),
    Fault(
        "a record is alone in one column only",
        "privacy.events:SelectionEvent.failure",
        "self.columns * alone",
        "alone",
        SELECTION + "test_two_columns_fail_twice_as_often",
    ),
    Fault(
        "a selection costs what one column does",
        "privacy.events:SelectionEvent.mu",
        "math.sqrt(self.columns)",
        "1",
        SELECTION + "test_two_columns_fail_twice_as_often",
    ),
    Fault(
        "failures are forgotten in sums",
        "privacy.loss:Loss.together",
        "_added((loss.failure for loss in losses))",
        "0.0",
        SELECTION + "test_a_loss_with_a_failure_has_no_mu_and_takes_it_from_delta",
    ),
    Fault(
        "of several failures only the largest counts",
        "privacy.loss:Loss.together",
        "_added((loss.failure for loss in losses))",
        "max((loss.failure for loss in losses), default=0.0)",
        SELECTION + "test_failures_of_several_runs_add_up",
    ),
    Fault(
        "a schema that one dataset has paid for is free for all of the ledger",
        "privacy.ledger:_reserved",
        "\"SELECT content FROM entry WHERE dataset = ? AND kind = 'reserve'\"",
        "\"SELECT content FROM entry WHERE ? > '' AND kind = 'reserve'\"",
        MEASURE + "test_each_dataset_of_a_ledger_pays_for_a_measured_schema",
    ),
    Fault(
        "noise decides nothing: every value is shown",
        "mechanism.noise:select_counts",
        "np.where(noisy >= threshold, noisy, 0)",
        "noisy",
        SELECTION + "test_a_count_of_one_is_shown_as_often_as_the_failure_says",
    ),
    Fault(
        "a release forgets what its schema has cost",
        "release.account:Privacy.loss",
        "self.run_loss.after(self.schema_loss, self.delta)",
        "self.run_loss",
        MEASURE + "test_a_release_counts_what_its_schema_has_cost",
    ),
    Fault(
        "a run that was chosen by its schema is composed as if it were fixed in advance",
        "privacy.loss:Loss.after",
        "Loss.adaptive(parts, delta) if schema.floor_mu else Loss.together(parts)",
        "Loss.together(parts)",
        BOUND + "test_what_is_printed_of_a_run_with_a_measured_schema_holds_for_whoever_chose_it",
    ),
    Fault(
        "an earlier release is composed with its schema as if it were fixed in advance",
        "scoring.transfer:PriorScores.loss",
        "Loss.of(self.events).after(Loss.of_schema(self.schema), self.delta)",
        "Loss.of(self.events) + Loss.of_schema(self.schema)",
        "release/test_borrowed.py::"
        "test_the_earlier_release_is_composed_with_its_measured_schema_as_its_own_account_is",
    ),
    Fault(
        "a run that pays for its schema is a first run",
        "privacy.ledger:Balance.covers",
        "not self.spendings and (not after_schema) and self._allows(loss)",
        "not self.spendings and self._allows(loss)",
        BOUND + "test_a_first_run_that_pays_for_its_schema_is_refused_where_only_the_composed_account_fits",
    ),
    Fault(
        "both measurements get the whole budget",
        "curator.private_schema:DraftPlan.charges",
        "self.mu * math.sqrt(0.5)",
        "self.mu",
        MEASURE + "test_it_costs_what_was_asked_and_no_more",
    ),
    Fault(
        "an infinity with a plus sign reads as its column was stored",
        "curator.private_schema:texts_of",
        "'^[+]?(?i:inf|infinity)$'",
        "'^(?i:inf|infinity)$'",
        MEASURE + "test_a_type_that_a_reader_inferred_changes_no_count",
    ),
    Fault(
        "a negative infinity reads as its column was stored",
        "curator.private_schema:texts_of",
        "pc.replace_substring_regex(texts, '^-(?i:inf|infinity)$', '-inf')",
        "texts",
        MEASURE + "test_a_type_that_a_reader_inferred_changes_no_count",
    ),
    Fault(
        "the table says which columns have texts",
        "curator.private_schema:measure_schema",
        "_asked(shapes, label)",
        "FrequentValues(source.names[:1 + (source.rows or 0) % 2], frozenset())",
        MEASURE + "test_with_what_was_released_frozen_nothing_else_of_the_table_shows",
    ),
    Fault(
        "a selection may show the value of one record as often as it likes",
        "mechanism.meter:Meter._check",
        "spent.failure <= self.failure * (1 + 1e-12)",
        "True",
        MEASURE + "test_the_meter_refuses_a_selection_beyond_its_budget",
    ),
    Fault(
        "a selection costs nothing afterwards",
        "mechanism.meter:Meter._check",
        "[*self.events, *self.selections, planned]",
        "[*self.events, planned]",
        MEASURE + "test_the_meter_refuses_a_selection_beyond_its_budget",
    ),
    Fault(
        "the ledger is not told of failures",
        "privacy.ledger:Ledger.reserve",
        "measured.failure",
        "1e-300",
        MEASURE + "test_the_ledger_pays_before_the_table_is_read_and_for_what_went_wrong",
    ),
    # The guarantee.
    Fault(
        "the guarantee uses the part of delta that it fails with",
        "curator.dossier:dossier",
        "privacy.delta * (1 - eta)",
        "privacy.delta",
        "curator/test_dossier.py::test_what_the_guarantee_fails_with_is_taken_from_delta",
    ),
    Fault(
        "the chances of many records are not added up",
        "curator.guarantee:_Reaching.at_most",
        "self.often + self.seldom / chance",
        "self.often",
        EXACT + "test_more_records_than_said_reach_a_level_no_more_often_than_they_may",
    ),
    Fault(
        "each number of records has the whole chance",
        "curator.guarantee:_Reaching.highest",
        "chance / 2 / _LOOKED_AT",
        "chance",
        EXACT + "test_what_may_fail_has_the_whole_chance_together",
    ),
    Fault(
        "a label's threshold has the whole chance",
        "curator.guarantee:_own_or_common",
        "0.45 * chance",
        "chance",
        EXACT + "test_a_label_s_number_its_own_threshold_and_the_common_one_share_the_chance",
    ),
    Fault(
        "edges above cannot be reached",
        "curator.guarantee:_Reaching.highest",
        "chance / 2 - float(several @ ndtr((above - room) / noise))",
        "chance / 2",
        EXACT + "test_whichever_edge_above_is_reached_it_counts",
    ),
    Fault(
        "the noise has the whole chance",
        "curator.guarantee:_Reaching.highest",
        "chance / 2 - float(several @ ndtr((above - room) / noise))",
        "chance - float(several @ ndtr((above - room) / noise))",
        TIGHT,
    ),
    Fault(
        "the threshold has the noise of one bin",
        "curator.guarantee:_Reaching.highest",
        "math.sqrt(MOST_BINS * self.histograms)",
        "1.0",
        TIGHT,
    ),
    Fault(
        "several histograms have the noise of one",
        "curator.guarantee:_Reaching.highest",
        "MOST_BINS * self.histograms",
        "MOST_BINS",
        EXACT + "test_several_histograms_have_the_noise_of_all_their_bins",
    ),
    Fault(
        "the threshold is at the lower end of its bin",
        "curator.guarantee:_Reaching.highest",
        "self.levels[k] + min(part, 1.0) * (self.levels[k + 1] - self.levels[k])",
        "self.levels[k]",
        TIGHT,
    ),
    Fault(
        "no slack for rounded noise",
        "curator.guarantee:_Reaching.highest",
        "largest * MOST_BINS * self.histograms / 2",
        "0.0",
        EXACT + "test_noise_that_rounding_makes_larger_is_allowed_for",
    ),
    Fault(
        "the smaller factor of a bin's noise",
        "curator.guarantee:_Reaching.highest",
        "max(1 - fraction, fraction)",
        "min(1 - fraction, fraction)",
        TIGHT,
    ),
    Fault(
        "what lies below the grid is forgotten",
        "scoring.rarity:SumTails.lower",
        "chance - lost",
        "chance + 0 * lost",
        EXACT + "test_what_lies_below_the_grid_is_a_failure",
    ),
    Fault(
        "no slack for rounded parts",
        "scoring.rarity:SumTails.lower",
        "found -= (len(self.columns) + 1) / NAT",
        "pass",
        EXACT + "test_what_is_certain_is_bounded_in_spite_of_rounding",
    ),
    Fault(
        "steps rounded the wrong way",
        "scoring.rarity:_log_moments",
        "grid[1:] if side > 0 else grid[:-1]",
        "grid[:-1] if side > 0 else grid[1:]",
        EXACT + "test_a_score_falls_below_its_bound_no_more_often_than_it_may",
    ),
    Fault(
        "a record's score has the whole chance",
        "curator.guarantee:guaranteed_weights",
        "eta / 2 / own",
        "eta / own",
        EXACT + "test_score_and_threshold_share_the_chance",
    ),
    Fault(
        "each row of a person has the whole chance",
        "curator.guarantee:guaranteed_weights",
        "own",
        "own ** 0",
        PERSON_BOUNDS + "test_any_score_of_a_person_falls_below_its_bound_nearly_as_often_as_it_may",
    ),
    Fault(
        "each label of a person has the whole chance",
        "curator.guarantee:_highest_thresholds",
        "chance / several",
        "chance",
        PERSON_BOUNDS + "test_any_threshold_of_a_person_exceeds_its_bound_nearly_as_often_as_it_may",
    ),
    Fault(
        "the table lacks one record where it lacks a person",
        "curator.guarantee:_Reaching.highest",
        "self.records - self.most if rows is None else rows",
        "self.records - 1 if rows is None else rows",
        PERSON_BOUNDS + "test_the_threshold_of_a_table_without_a_person_exceeds_its_bound_no_more_often",
    ),
    Fault(
        "all but a person are not all that are left",
        "curator.guarantee:_Reaching.highest",
        "above[0] >= self.records - self.most",
        "above[0] >= self.records - 1",
        PERSON_BOUNDS + "test_a_first_edge_that_all_but_one_person_reach_may_be_the_threshold",
    ),
    Fault(
        "a label's bin lacks one record where it lacks a person",
        "curator.guarantee:_own_or_common",
        "label.most",
        "1",
        PERSON_BOUNDS + "test_a_label_that_a_person_may_leave_with_too_few_has_the_higher_threshold",
    ),
    Fault(
        "a bin lacks one record where it lacks a person",
        "scoring.rarity:_part",
        "most",
        "1",
        PERSON_BOUNDS + "test_scores_on_a_table_without_a_person_reach_a_level_no_more_often_than_said",
    ),
    Fault(
        "an audit takes the bound of a person's last row",
        "attacks.audit:white_box",
        "target.together(weights[target.others.rows:], plan.schema)",
        "float(weights[-1])",
        PERSON_BOUNDS + "test_an_audit_judges_the_guarantee_of_a_person",
    ),
    Fault(
        "rows are counted in full where they count less",
        "curator.guarantee:_count",
        "batch.whose.factors / UNITS",
        "np.ones(batch.rows)",
        PERSON_BOUNDS + "test_rows_are_counted_for_what_they_count",
    ),
    # The noise, and who takes part.
    Fault(
        "a short tail of 0",
        "mechanism.noise:rounded_gaussian",
        "_SHORT_TAIL",
        "0.0",
        OPEN,
    ),
    Fault(
        "no error margin",
        "mechanism.noise:rounded_gaussian",
        "from_half <= error",
        "from_half < 0 * error",
        OPEN,
    ),
    Fault(
        "no error margin of choices",
        "mechanism.noise:choose_exponential",
        "_CHOICE_ERROR * ends[-1]",
        "-1",
        NOISE + "test_bits_that_leave_two_choices_open_are_extended",
    ),
    Fault(
        "all rounds have one sample",
        "engine.local:Held.sampled",
        "entropy",
        "bytes",
        "engine/test_local.py::test_records_and_persons_are_drawn_afresh_in_each_round",
    ),
    Fault(
        "all rounds have one sample of persons",
        "engine.local:PersonHeld.sampled",
        "entropy",
        "bytes",
        "engine/test_local.py::test_records_and_persons_are_drawn_afresh_in_each_round",
    ),
    Fault(
        "a training on a cluster is paid for",
        "run.run:_check",
        "plan.training is not None and name != 'local'",
        "False",
        CLUSTERS + "test_a_training_on_a_cluster_is_refused_before_anything_is_spent",
    ),
    Fault(
        "one random number too many takes part",
        "engine.local:sample_rows",
        "drawn < round(rate * RATE_UNIT)",
        "drawn <= round(rate * RATE_UNIT)",
        "engine/test_local.py::test_exactly_so_many_of_all_random_numbers_take_part",
    ),
    # Clusters.
    Fault(
        "a part of the table counts twice",
        "engine.clusters:_pieces",
        "pieces",
        "[*pieces, pieces[0]]",
        SAME_BITS,
    ),
    Fault(
        "a task that is run again adds again",
        "engine.tasks:added",
        "parts[1:]",
        "parts",
        SAME_BITS,
    ),
    Fault(
        "noise is drawn by a worker",
        "engine.tasks:counted_once",
        "total",
        "total + np.random.default_rng().integers(0, 2, total.shape)",
        SAME_BITS,
    ),
    Fault(
        "parts that were added are not counted",
        "engine.clusters:sum_of",
        "found[-1] != len(parts) or (like is not None and found.size != like.size + 1)",
        "like is not None and found.size != like.size + 1",
        REFUSED,
    ),
    Fault(
        "more than a sum comes back",
        "engine.clusters:sum_of",
        "found.size != like.size + 1",
        "False",
        REFUSED,
    ),
    Fault(
        "records come back",
        "engine.clusters:sum_of",
        "not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.ndim != 1",
        "isinstance(found, np.ndarray) and found.dtype != np.int64 or found.ndim != 1",
        REFUSED,
    ),
    Fault(
        "a worker passes the message of another library on",
        "engine.tasks:carried_out",
        "f'a worker failed ({type(error).__name__}); its message may quote data and was dropped'",
        "str(error)",
        CLUSTERS + "test_what_a_worker_raises_comes_back_as_one_line_without_data",
    ),
    # The account.
    Fault(
        "the smallest weight of a stratum",
        "release.account:Privacy._largest_weights",
        "self._score_bins.starts",
        "np.append(self._score_bins.starts[1:] - 1, 2 ** 50)",
        "release/test_account.py::test_no_score_of_a_stratum_weighs_more_than_the_stratum_says",
    ),
    Fault(
        "the dossier's epsilon rounded down",
        "curator.dossier:_epsilons",
        "np.minimum(np.searchsorted(grid, influence), len(grid) - 1)",
        "np.maximum(np.searchsorted(grid, influence) - 1, 0)",
        "curator/test_dossier.py::test_no_epsilon_is_rounded_down",
    ),
    Fault(
        "delta without its error",
        "privacy.gaussian:delta_of",
        "delta + error",
        "delta",
        GAUSSIAN + "test_no_delta_is_below_the_exact_one",
    ),
    Fault(
        "composition rounded down",
        "privacy.gaussian:compose",
        "1 + 1e-15",
        "1 - 1e-15",
        GAUSSIAN + "test_a_composition_is_no_less_than_the_exact_one",
    ),
    Fault(
        "no reserve for the roundings of charges",
        "planning.plan:make_charges.mu",
        "budget.mu * math.sqrt(share) * (1 - 1e-12)",
        "budget.mu * math.sqrt(share)",
        "planning/test_plan.py::test_what_is_measured_never_exceeds_the_budget_by_a_rounding",
    ),
    Fault(
        "no reserve for numerical composition",
        "privacy.pld:epsilon",
        "delta - _COMPOSITION_ERROR",
        "delta",
        LOSS + "test_the_error_of_numerical_composition_is_taken_off_delta",
    ),
    Fault(
        "influence rounded down in the account",
        "privacy.loss:Loss.at",
        "math.ceil",
        "math.floor",
        LOSS + "test_an_influence_is_never_rounded_down",
    ),
    Fault(
        "influence rounded down in its table",
        "privacy.loss:Loss._tabulated",
        "np.ceil",
        "np.floor",
        LOSS + "test_an_influence_is_never_rounded_down",
    ),
    Fault(
        "a ledger's tolerance of 1e-4",
        "privacy.ledger:Balance._holds",
        "_ROUNDING",
        "0.0001",
        "privacy/test_ledger.py::test_a_limit_is_exceeded_by_the_last_digits_of_a_rounding_at_most",
    ),
    # Training.
    Fault(
        "gradients bounded at full weight",
        "models.dp_sgd:Gradients._factors",
        "weights * unit",
        "FULL * unit",
        NETWORK + "test_the_bound_holds_even_if_the_clip_does_not",
    ),
    Fault(
        "gradients of any norm",
        "models.dp_sgd:Gradients._factors",
        "squares.sum(axis=0) <= (weights * unit) ** 2",
        "squares.sum(axis=0) <= np.inf",
        NETWORK + "test_the_bound_holds_even_if_the_clip_does_not",
    ),
    Fault(
        "weights before the clip",
        "models.dp_sgd:Gradients._factors",
        "np.maximum(norm, self.clip)",
        "np.maximum(norm * weights / FULL, self.clip)",
        NETWORK + "test_a_round_is_the_sum_of_clipped_weighted_gradients_worked_out_one_by_one",
    ),
    # Where tables come from.
    Fault(
        "names of folders read as numbers",
        "io.sources:_cells",
        "unquote(value)",
        "unquote(value).lstrip('0')",
        PLACES + "test_folders_that_are_named_like_numbers_but_for_one_read_alike",
    ),
    Fault(
        "the last of several files left out",
        "io.sources:join_sources.read",
        "sources",
        "sources[:-1]",
        PLACES + "test_columns_in_the_names_of_folders_are_columns",
    ),
    Fault(
        "names of folders in messages",
        "io.sources:without_cells",
        "_CELL.sub('\\\\1=.../', file.relative_to(root).as_posix())",
        "file.relative_to(root).as_posix()",
        PLACES + "test_the_names_of_folders_are_cells_and_not_shown",
    ),
    Fault(
        "the first row of a file without a header shown",
        "io.sources:_check_same",
        "_NO_HEADER",
        "()",
        PLACES + "test_a_second_file_without_a_header_line_shows_no_cell",
    ),
    Fault(
        "cells of several kinds all become texts",
        "io.sql:_array",
        "read_cells(cells)",
        "pa.array([None if c is None else str(c) for c in cells])",
        PLACES + "test_cells_of_sqlite_each_have_their_own_type",
    ),
    Fault(
        "codes with leading zeros may be stored as numbers",
        "io.source:reads_as_text",
        "numbers_of(column.values) is not None",
        "True",
        ALONE + "test_codes_with_leading_zeros_are_refused_as_numbers",
    ),
    Fault(
        "text of a number is read in a notation that its storage has not",
        "io.source:reads_as_text",
        "plain and numbers_of(column.special) is not None",
        "numbers_of(column.special) is not None",
        ALONE + "test_no_odd_record_changes_how_a_reader_s_cells_are_read[pandas]",
    ),
    Fault(
        "a text of a number is another value than the number",
        "io.encode:_category",
        "found if numbers is None else _or_number(array, found, numbers)",
        "found",
        ALONE + "test_no_odd_record_changes_how_a_reader_s_cells_are_read[polars]",
    ),
    Fault(
        "only the type of the last object counts",
        "io.source:_kinds",
        "found |= kinds_of_cells(cells)",
        "found = kinds_of_cells(cells.slice(len(cells) - 1))",
        ALONE + "test_a_table_of_several_chunks_in_which_one_record_is_a_word",
    ),
    Fault(
        "ids that may have lost digits",
        "io.source:_check_ids",
        "types.is_floating(kind) and source_kind != 'statistics'",
        "False",
        PERSONS + "test_real_numbers_are_refused_as_ids",
    ),
    Fault(
        "a file may change while it is read",
        "io.source:unchanged.check",
        "state_of(path)[:len(before)] != before",
        "False",
        PLACES + "test_nor_may_a_file_change_while_it_is_read",
    ),
    Fault(
        "encodings in which a cell changes others",
        "io.reading:_check_encoding",
        "not known or _STATEFUL.fullmatch(found)",
        "not known",
        PLACES + "test_ways_of_writing_that_there_are_not",
    ),
    Fault(
        "an address is shown with its password",
        "io.sql:parse_address",
        "shown(text)",
        "text",
        DATABASES + "test_an_address_is_shown_without_its_password",
    ),
    Fault(
        "a reader's own message is passed on",
        "io.source:quietly.reading",
        "try:\n    yield from read(columns)\n"
        "except errors:\n    raise DataError(f'{message}; {remedy}') from None",
        "try:\n    yield from read(columns)\n"
        "except errors as error:\n    raise DataError(f'{message}; {error}') from None",
        DATABASES + "test_a_query_that_fails_at_some_row_of_a_file_quotes_no_cell",
    ),
    Fault(
        "DuckDB reads other files, and guesses types",
        "io.sql:open_duckdb.connect",
        "{'enable_external_access': 'false', 'autoinstall_known_extensions': 'false'}",
        "{'enable_external_access': 'true', 'autoinstall_known_extensions': 'false'}",
        DATABASES + "test_a_query_of_duckdb_reaches_no_other_file",
    ),
    # What is drawn.
    Fault(
        "two rows have the same id",
        "io.ids:shuffled",
        "numbers",
        "numbers // np.uint64(2)",
        "io/test_ids.py::test_ids_have_their_form_and_are_all_different",
    ),
    Fault(
        "the label of a completed row does not follow what is given",
        "models.marginal.tree:_messages",
        "at_label * message",
        "at_label * (message > 0)",
        "sampling/test_conditional.py::test_a_label_follows_what_is_given",
    ),
    Fault(
        "a message quotes a cell of the given rows",
        "sampling.conditional:_check",
        "f\"row {row:,} of the given rows: its '{column.name}' {why}\"",
        "f\"row {row:,} of the given rows: its '{column.name}' {why} ({array[int(np.argmax(wrong))]})\"",
        "sampling/test_conditional.py::test_what_cannot_be_given_is_refused_by_row_and_column",
    ),
    Fault(
        "rules take records away, and no raking makes up for it",
        "sampling.constraints:_rake",
        "table.factors[:] *= ratio",
        "pass",
        "sampling/test_constraints.py::test_margins_that_no_rule_contradicts_are_kept",
    ),
    Fault(
        "a clip is larger than the sensitivity says",
        "models.statistics:LabelSums.multiplier",
        "self.clip",
        "self.clip + self.constant",
        "models/test_naive_bayes.py::test_sums_are_those_of_single_records_and_no_norm_exceeds_the_weight",
    ),
    Fault(
        "the norm of a record leaves out what is special or missing",
        "models.statistics:ColumnPart.squared_norms",
        "one_hot[self.groups.of_bin]",
        "one_hot[np.minimum(self.groups.of_bin, 0)]",
        "models/test_naive_bayes.py::test_sums_are_those_of_single_records_and_no_norm_exceeds_the_weight",
    ),
    Fault(
        "a record counts in another group than its own",
        "models.statistics:ColumnPart.sums",
        "np.where(self.groups.of_bin == NONE, width - 1, self.groups.of_bin).take(cell)",
        "np.where(self.groups.of_bin == NONE, width - 1, self.groups.of_bin).take(cell - 1)",
        "scoring/test_families.py::test_models_learn_families_and_draw_all_of_their_values",
    ),
]


def make_server() -> Server:
    return Server(f"tests/{fault.test.partition('[')[0]}" for fault in FAULTS if fault.file not in FRESH)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    made = make_server()
    yield made
    made.close()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_fault_is_noticed(fault: Fault, server: Server) -> None:
    name = fault.test.partition("::")[2].partition("[")[0]
    assert f"def {name}(" in (Path(__file__).parent / fault.file).read_text()
    assert server.outcome(fault.change) == "caught"


def main() -> None:
    server = make_server()
    for fault in FAULTS:
        print(f"{server.outcome(fault.change):8} {fault.name}: {fault.test}", flush=True)
    server.close()


if __name__ == "__main__":
    main()

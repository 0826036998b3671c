"""Each measure on tables that are small enough to know its answer."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from repsynth.arrays import Floats, Ints
from repsynth.evaluation.export import Measure, compared, show
from repsynth.evaluation.fidelity import (
    category_coverage,
    copied,
    correlation_ratio,
    cramers_v,
    fraction_repeated,
    measure_associations,
    pearson,
    range_coverage,
)
from repsynth.evaluation.inputs import Inputs, overlapping
from repsynth.evaluation.points import Fill, Space, points_of_records
from repsynth.evaluation.prediction import (
    Coefficient,
    auroc,
    compare_coefficients,
    fit_boosting,
    fit_logistic,
    fit_newton,
    measure_propensity,
)
from repsynth.evaluation.subgroups import DECILE, ExtraLosses, Subgroup, by_decile, by_subgroup
from repsynth.io.records import MISSING, Records
from repsynth.schema import Boolean, Category, Integer, Schema

SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        Integer(name="age", min=0, max=99, special=("?",), missing=True),
        Integer(name="pay", min=0, max=1000),
        Category(name="kind", values=("a", "b", "c")),
        Boolean(name="sick"),
    ),
    label="sick",
)


def people(rows: int, seed: int = 0, *, signal: float = 2.0) -> Records:
    """Pay follows from age; who is b, and who is old, is sick more often."""
    generator = np.random.default_rng(seed)
    age = generator.integers(20, 80, rows)
    kind = generator.choice(3, rows, p=[0.6, 0.3, 0.1])
    chance = 1 / (1 + np.exp(-signal * ((age - 50) / 15 + (kind == 1) - 0.3)))
    sick = (generator.random(rows) < chance).astype(np.int64)
    pay = np.clip(10 * age + generator.normal(0, 60, rows), 0, 1000).astype(np.int64)
    return Records(rows=rows, codes={"age": age, "pay": pay, "kind": kind, "sick": sick})


# Associations


def test_associations_are_those_of_their_definitions() -> None:
    records = people(500)
    age, pay, kind, sick = (records.codes[name] for name in ("age", "pay", "kind", "sick"))
    found = measure_associations(records, SCHEMA)
    assert list(found) == list(combinations(("age", "pay", "kind", "sick"), 2))
    assert found["age", "pay"] == pytest.approx(np.corrcoef(age, pay)[0, 1], abs=1e-12)
    means = np.array([age[kind == k].mean() for k in range(3)])
    between = sum((kind == k).sum() * (means[k] - age.mean()) ** 2 for k in range(3))
    assert found["age", "kind"] == pytest.approx(np.sqrt(between / ((age - age.mean()) ** 2).sum()), abs=1e-12)
    table = np.array([[np.sum((kind == k) & (sick == s)) for s in (0, 1)] for k in range(3)])
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / 500
    v = np.sqrt(((table - expected) ** 2 / expected).sum() / 500)
    assert found["kind", "sick"] == pytest.approx(v, abs=1e-12)


def test_missing_and_special_cells_do_not_count_in_associations() -> None:
    records = people(300)
    age = records.codes["age"].copy()
    age[:40], age[40:60] = -1, 100  # missing, "?"
    holed = Records(rows=300, codes=records.codes | {"age": age})
    whole = measure_associations(records.take(np.arange(60, 300)), SCHEMA)
    found = measure_associations(holed, SCHEMA)
    assert all(found[pair] == pytest.approx(whole[pair]) for pair in found if "age" in pair)


def test_a_column_that_does_not_vary_has_no_association() -> None:
    same, varied = np.zeros(5, dtype=np.int64), np.array([0, 1, 0, 1, 1])
    assert all(np.isnan(f(same, varied)) for f in (pearson, correlation_ratio, cramers_v))
    assert np.isnan(cramers_v(varied[:0], varied[:0]))


# Coverage and copies


def test_coverage_of_what_is_not_there() -> None:
    real = Records(rows=4, codes={"age": np.array([20, 60, -1, 100]), "kind": np.array([0, 1, 2, -1])})
    made = Records(rows=2, codes={"age": np.array([-1, 100]), "kind": np.array([0, -1])})
    schema = Schema(one_row_per_person=True, columns=(SCHEMA.columns[0], SCHEMA.columns[2]))
    assert range_coverage(real, made, schema) == {"age": 0.0}  # no number at all
    assert np.isnan(range_coverage(made, real, schema)["age"])
    assert category_coverage(real, made, schema) == {"kind": 1 / 3}
    wider = Records(rows=2, codes={"age": np.array([0, 99]), "kind": np.array([0, 1])})
    assert range_coverage(real, wider, schema) == {"age": 1.0}


def test_copies_and_repeats_compare_whole_rows() -> None:
    one = Records(rows=3, codes={"a": np.array([1, 1, 2]), "b": np.array([5, 5, 5])})
    two = Records(rows=3, codes={"a": np.array([1, 2, 5]), "b": np.array([5, 6, 1])})
    assert fraction_repeated(one) == pytest.approx(2 / 3)
    assert fraction_repeated(two) == 0
    assert copied(two, one).tolist() == [True, False, False]


def test_an_overlap_is_noticed_and_chance_is_not() -> None:
    codes = {"a": np.arange(1000), "b": np.arange(1000) % 7}
    unique = Records(rows=1000, codes=codes)
    assert overlapping(unique.take(np.arange(500)), unique.take(np.arange(500, 1000))) == 0
    assert overlapping(unique.take(np.arange(500)), unique.take(np.arange(250, 750))) == pytest.approx(0.5)
    coarse = [Records(rows=1000, codes={"a": np.random.default_rng(k).integers(0, 30, 1000)}) for k in (0, 1)]
    assert fraction_repeated(coarse[0]) > 0.9  # all rows have a twin, and that is no overlap
    assert overlapping(*coarse) == 0


# Prediction


def test_areas_are_sklearns() -> None:
    generator = np.random.default_rng(3)
    labels, scores = generator.integers(0, 3, 200), generator.random((200, 3))
    scores /= scores.sum(axis=1, keepdims=True)
    macro = roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert auroc(labels, scores, np.arange(3)) == pytest.approx(macro, abs=1e-12)
    two = labels < 2
    pair = roc_auc_score(labels[two], scores[two, 1])
    assert auroc(labels[two], scores[two, :2], np.arange(2)) == pytest.approx(pair, abs=1e-12)
    assert auroc(labels[two], scores[two, :1], np.array([0])) == 0.5  # a label that it has not seen


def points(records: Records, labels: Ints | None = None):  # type: ignore[no-untyped-def]
    return points_of_records(records, SCHEMA, Fill.of(records, SCHEMA), labels)


def test_train_on_synthetic_knows_what_can_be_learned() -> None:
    train, test = people(2000, 0), people(1000, 1)
    for fit in (fit_logistic, fit_boosting):
        assert fit(points(train)).auroc(points(test)) > 0.85
        upside_down = Records(rows=2000, codes=train.codes | {"sick": 1 - train.codes["sick"]})
        assert fit(points(upside_down)).auroc(points(test)) < 0.15
    chances = fit_logistic(points(train)).chances(points(test), 3)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.all(chances[:, 2] == 0)


# Propensity


def test_propensity_is_chance_for_two_samples_and_names_the_column_that_tells() -> None:
    generator = np.random.default_rng(0)
    one, two = people(1500, 0), people(1500, 1)
    assert abs(measure_propensity(one, two, SCHEMA, generator).auc - 0.5) < 0.06
    wrong = Records(rows=1500, codes=two.codes | {"kind": np.full(1500, 2)})
    told = measure_propensity(one, wrong, SCHEMA, generator)
    assert told.auc > 0.9
    assert max(told.by_column, key=lambda name: told.by_column[name]) == "kind"


# Coefficients


def test_coefficients_are_those_of_maximum_likelihood() -> None:
    generator = np.random.default_rng(0)
    design = np.hstack([np.ones((800, 1)), generator.normal(size=(800, 2))])
    label = (generator.random(800) < 1 / (1 + np.exp(-design @ [0.5, 1.0, -2.0]))).astype(float)
    found, errors = fit_newton(design, label)
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000).fit(design, label)
    assert np.allclose(found, model.coef_[0], atol=1e-3)
    chance = 1 / (1 + np.exp(-design @ found))
    information = (design * (chance * (1 - chance))[:, None]).T @ design
    assert np.allclose(errors, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-3)


def test_overlap_of_intervals() -> None:
    assert Coefficient("x", 1.0, 0.5, 1.0, 0.5).overlap == pytest.approx(1)
    shifted = Coefficient("x", 0.0, 1.0, 1.959964, 1.0)  # half an interval apart
    assert shifted.overlap == pytest.approx(0.5)
    assert Coefficient("x", 0.0, 1.0, 0.0, 0.5).overlap == pytest.approx(0.75)  # 1 of the narrow, half of the wide
    assert Coefficient("x", 0.0, 0.1, 5.0, 0.1).overlap == 0


def test_terms_are_numbers_and_categories_that_both_tables_have() -> None:
    real, made = people(600, 0), people(600, 1)
    made.codes["kind"][made.codes["kind"] == 2] = 0  # no c
    label = [records.codes["sick"].astype(float) for records in (real, made)]
    found = compare_coefficients(real, made, SCHEMA, (label[0], label[1]))
    assert [each.term for each in found] == ["(constant)", "age", "pay", "kind = b"]
    same = compare_coefficients(real, real, SCHEMA, (label[0], label[0]))
    assert all(each.overlap == pytest.approx(1) for each in same)


def test_rare_categories_of_large_columns_share_a_code() -> None:
    column = Category(name="kind", values=tuple(f"k{i}" for i in range(500)))
    schema = Schema(columns=(column, Category(name="few", values=("a", "b"))))
    kinds = np.concatenate([np.repeat(np.arange(499, 299, -1), 2), np.arange(300), [MISSING]])
    records = Records(rows=701, codes={"kind": kinds, "few": np.zeros(701, dtype=np.int64)})
    fill = Fill.of(records, schema)
    made = points_of_records(records, schema, fill, np.zeros(701))
    assert made.sizes == (298, 2)
    assert fill.values(column)[-2:] == ("k96", "any rarer value")
    assert len(fill.pooled["kind"]) == 297
    assert set(made.codes[kinds >= 300, 0]) == set(range(200))  # the frequent ones keep their own codes
    assert set(made.codes[(kinds >= 97) & (kinds < 300), 0]) == {297}
    assert made.codes[-1, 0] == MISSING
    assert Space.of(made).place(made).shape == (701, 300)


# Who pays


def losses(train: Records, made: Records, test: Records) -> ExtraLosses:
    half = train.take(np.arange(train.rows // 2))
    return ExtraLosses.of(points(test), *(fit_logistic(points(records)) for records in (train, half, made)))


def test_who_pays_is_who_was_left_out() -> None:
    train, test = people(4000, 0), people(4000, 1)
    blind = train.codes["kind"] == 1
    # Among the b, a synthetic table has labels by chance.
    sick = np.where(blind, np.random.default_rng(2).permutation(train.codes["sick"]), train.codes["sick"])
    made = Records(rows=4000, codes=train.codes | {"sick": sick})
    every, halves = replace(SCHEMA, label=None), (train.take(np.arange(2000)), train.take(np.arange(2000, 4000)))
    groups = by_subgroup(train, made, halves, every, (test, losses(train, made, test)), "sick")
    by_name = {group.name: group for group in groups}
    assert set(by_name) == {"kind = a", "kind = b", "kind = c", "sick = false", "sick = true"}
    assert by_name["kind = b"].pays_more
    assert not by_name["kind = a"].pays_more
    assert not by_name["kind = c"].pays_more
    assert by_name["sick = true"].extra is None  # errors within a label say nothing
    fair = by_subgroup(train, train, halves, every, (test, losses(train, train, test)), "sick")
    assert not any(group.pays_more or group.too_few for group in fair)
    assert all(group.distance == 0 for group in fair)
    assert all((group.distance_floor or 0) > 0 for group in fair)


def test_a_group_that_is_gone_is_too_few() -> None:
    for records, real, synthetic, too_few in (
        (400, 0.1, 0.05, True),
        (400, 0.1, 0.09, False),  # within a fifth
        (9, 0.009, 0.005, False),  # within chance
    ):
        group = Subgroup(
            column="kind", value="c", records=records, fraction_real=real, fraction_synthetic=synthetic
        )
        assert group.too_few is too_few


def test_deciles_count_how_far_out_synthetic_records_lie() -> None:
    generator = np.random.default_rng(0)

    def table(scale: float, seed: int) -> Records:
        age = np.clip(np.random.default_rng(seed).normal(50, scale, 3000), 0, 99).astype(np.int64)
        return Records(rows=3000, codes=people(3000, seed).codes | {"age": age})

    reference, real = points(table(8, 0)), points(table(8, 1))
    alike = by_decile(reference, real, points(table(8, 2)), None, generator)
    assert [group.value for group in alike] == [str(k) for k in range(1, 11)]
    assert all(group.column == DECILE for group in alike)
    assert 0.07 < alike[-1].fraction_synthetic < 0.13
    assert sum(group.fraction_synthetic for group in alike) == pytest.approx(1)
    wide = by_decile(reference, real, points(table(30, 2)), None, generator)
    assert wide[-1].fraction_synthetic > 0.2


# Words


@pytest.mark.parametrize(
    ("value", "floor", "independent", "words"),
    [
        (0.0, 0.01, None, "the best there is"),
        (0.01, 0.02, None, "as near as two real halves"),
        (0.06, 0.02, 0.12, "3.0 times as far from the best as two real halves; 50 % of the way to independent"),
        (0.6, 0.001, None, "off the best by 0.600, two real halves by 0.001"),
        (0.2, None, 0.1, "off the best by 0.200; no better than independent columns"),
    ],
)
def test_words_follow_from_numbers(
    value: float, floor: float | None, independent: float | None, words: str
) -> None:
    measure = Measure(name="m", what="w", value=value, best=0.0, floor=floor, independent=independent)
    assert measure.words.startswith(words)


def test_parts_are_ordered_by_their_distance_from_the_best() -> None:
    parts = {"a": 0.9, "b": 0.2, "c": 1.0, "d": float("nan")}
    assert Measure(name="m", what="w", value=0.5, best=1.0, breakdown=parts).worst(2) == {"b": 0.2, "a": 0.9}
    assert list(Measure(name="m", what="w", value=0.5, best=1.0, part_best=0.0, breakdown=parts).worst(1)) == ["c"]
    assert compared(0.1, 0.1, "there") == "as many as there"
    assert compared(0.1, 0.0, "there") == "more than there"
    assert show(float("nan")) == "-"


def test_a_numeric_label_is_cut_at_the_real_median() -> None:
    records = people(101)
    inputs = Inputs(SCHEMA, records, records, label="pay")
    labels: Floats = inputs.labels_of(records)
    median = np.median(records.codes["pay"])
    assert np.array_equal(labels, records.codes["pay"] > median)
    assert "pay" not in {column.name for column in inputs.features.features}
    assert "sick" in {column.name for column in inputs.features.features}

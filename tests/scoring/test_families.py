"""Codes of thousands of values: rare ones of a public family are learned together, at the same charge."""

import re

import numpy as np
import pytest
from checks import check_contribution
from hypothesis import given
from hypothesis import strategies as st

from repsynth import Release, parse_schema
from repsynth.columns.adaptive_histogram import ColumnHistograms, Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.estimation import by_family
from repsynth.columns.groups import choose_groups, groups_of_families
from repsynth.errors import SchemaError
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Chosen
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.planning.warnings import plan_warnings
from repsynth.run.run import run
from repsynth.schema import Boolean, Category, Schema, schema_from_dict, schema_to_dict

FAMILIES, EACH = 8, 25
CODES = tuple(f"{letter}{k:02}" for letter in "ABCDEFGH" for k in range(EACH))
CODE = Category(name="code", values=CODES, prefix=1)


def histograms_of(counts: np.ndarray, column: Category = CODE, sigma: float = 10.0) -> Histograms:
    bins = Bins.discrete(column)
    return Histograms((bins,), np.append(counts, 0).astype(np.int64), sigma, float(counts.sum()))


# --- what a schema may say --------------------------------------------------------------------------------


def test_families_come_from_a_prefix_a_table_or_are_one() -> None:
    values = ("A1", "B1", "A2")
    assert Category(name="a", values=values).families is None
    assert Category(name="a", values=values, prefix=1).families == (0, 1, 0)
    assert Category(name="a", values=values, rarest="together").families == (0, 0, 0)
    parent = (("A2", "x"), ("B1", "x"), ("A1", "y"))
    assert Category(name="a", values=values, parent=parent).families == (0, 1, 1)


@pytest.mark.parametrize("keys", [{"prefix": 1}, {"rarest": "together"}, {"parent": (("A1", "x"), ("A2", "x"))}])
def test_they_come_back_from_json(keys: dict[str, object]) -> None:
    schema = Schema(
        one_row_per_person=True, columns=(Category(name="a", values=("A1", "A2"), **keys), Boolean(name="b"))
    )  # type: ignore[arg-type]
    assert schema_from_dict(schema_to_dict(schema)) == schema


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("prefix = 0", "'prefix' must be how many characters"),
        ('prefix = "A"', "'prefix' must be how many characters"),
        ("prefix = true", "'prefix' must be how many characters"),
        ("prefix = 2", "'prefix' makes a family of every value"),
        ('rarest = "apart"', "'rarest' can only be"),
        ('parent = {A1 = "x"}', "'parent' must be a table that has one entry for each"),
        ('parent = {A1 = "x", A2 = 3, B1 = "y"}', "'parent' must be a table that has one entry for each"),
        ('parent = "codes.csv"', "'parent' must be a table that has one entry for each"),
        ('prefix = 1\nrarest = "together"', "exclude each other"),
    ],
)
def test_families_that_cannot_be_are_refused_where_they_stand(lines: str, said: str) -> None:
    text = (
        "one_row_per_person = true\n"
        f'[columns.b]\ntype = "boolean"\n[columns.a]\ntype = "category"\nvalues = ["A1", "A2", "B1"]\n{lines}\n'
    )
    with pytest.raises(SchemaError, match=re.escape(said)) as error:
        parse_schema(text)
    assert "line " in str(error.value)


def test_a_label_has_no_families() -> None:
    text = 'label = "a"\ncolumns.b.type = "boolean"\n'
    with pytest.raises(SchemaError, match="learned one by one"):
        parse_schema(text + '[columns.a]\ntype = "category"\nvalues = ["x1", "x2"]\nrarest = "together"\n')


# --- what a histogram tells of them -----------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), sigma=st.floats(0.1, 100.0))
def test_values_of_a_family_share_what_is_below_the_noise(seed: int, sigma: float) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.exponential(40.0, len(CODES)) + sigma * generator.normal(size=len(CODES))
    families = np.array(CODE.families)
    found = by_family(counts, sigma, families)
    assert (found >= 0).all()
    seen = counts > sigma * np.sqrt(2 * np.log(len(CODES)))
    assert np.array_equal(found[seen], counts[seen])
    for family in range(FAMILIES):
        assert len(np.unique(found[~seen & (families == family)])) <= 1


def test_sums_over_families_show_what_single_values_do_not() -> None:
    """The first half of the families has 20 records for each code, at a noise of 10: the sums tell."""
    truth = np.repeat([20.0, 0.0], len(CODES) // 2)
    noise = 10.0 * np.random.default_rng(3).normal(size=len(CODES))
    found = by_family(truth + noise, 10.0, np.array(CODE.families))
    assert np.abs(found - truth).mean() < 0.4 * np.abs(noise).mean()
    histograms = histograms_of(truth + noise)
    plain = histograms_of(truth + noise, Category(name="code", values=CODES))
    shares = truth / truth.sum()
    distance = [np.abs(each.probabilities[0] - shares).sum() for each in (histograms, plain)]
    assert distance[0] < 0.7 * distance[1]


def test_groups_are_large_values_families_and_the_rest() -> None:
    counts = np.zeros(len(CODES))
    counts[:EACH] = 4.0  # a family of 100 records
    counts[EACH] = 900.0
    histograms = histograms_of(counts, sigma=5.0)
    (groups,) = choose_groups(histograms, None, most=8, noise=np.inf)
    of_value = groups.of_bin[:-1]
    assert len(set(of_value[:EACH])) == 1
    assert (of_value == of_value[EACH]).sum() == 1
    assert len(set(of_value[EACH + 1 :])) == 1
    assert groups.count == 3
    again = groups_of_families(histograms, 0)
    assert again is not None
    assert np.array_equal(again.of_bin, groups.of_bin)
    assert groups_of_families(histograms_of(counts, Category(name="code", values=CODES)), 0) is None


def test_a_record_still_counts_once() -> None:
    statistic = ColumnHistograms((Bins.discrete(CODE),))
    assert statistic.sensitivity == 1.0
    records = Records(rows=len(CODES), codes={"code": np.arange(len(CODES))})
    check_contribution(statistic, records)


# --- models -----------------------------------------------------------------------------------------------


def table_of(rows: int) -> dict[str, np.ndarray]:
    """The family decides the label; codes within a family are alike."""
    generator = np.random.default_rng(8)
    family = generator.integers(0, FAMILIES, rows)
    code = np.array(CODES)[family * EACH + generator.integers(0, EACH, rows)]
    return {"code": code, "owner": generator.random(rows) < np.where(family % 2 == 0, 0.9, 0.1)}


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
@pytest.mark.parametrize("missing", [False, True])
def test_models_learn_families_and_draw_all_of_their_values(model: str, missing: bool, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    import pyarrow as pa

    column = Category(name="code", values=CODES, prefix=1, missing=missing)
    schema = Schema(one_row_per_person=True, columns=(column, Boolean(name="owner")), label="owner")
    table = pa.table(table_of(4000))
    plan = make_plan(schema, Settings.of(epsilon=2.0, delta=1e-6, model=model))
    release = run(plan, open_source(table), noise_seed=5)
    folder = release.save(tmp_path_factory.mktemp("release") / "release")
    drawn = Release.load(folder).sample(4000, seed=2)
    assert drawn.equals(release.sample(4000, seed=2))
    family = np.array([CODES.index(code) // EACH for code in drawn["code"].to_pylist() if code is not None])
    owner = drawn["owner"].filter(drawn["code"].is_valid()).to_numpy()
    for k in range(FAMILIES):
        assert owner[family == k].mean() > 0.65 if k % 2 == 0 else owner[family == k].mean() < 0.35
    assert len(set(drawn["code"].to_pylist())) > 0.9 * len(CODES)
    records = Records(rows=40, codes={"code": np.arange(-1, 39), "owner": np.arange(40) % 2})
    for kernel in release.kernels().values():
        check_contribution(kernel.choice if isinstance(kernel, Chosen) else kernel, records)


def test_families_are_warned_of_by_their_own_size() -> None:
    def warned(column: Category, rows: int) -> bool:
        plan = make_plan(
            Schema(one_row_per_person=True, columns=(column, Boolean(name="owner"))),
            Settings.of(epsilon=1.0, model="mst"),
        )
        return any("fewer records per value" in said for said in plan_warnings(plan, rows))

    plain = Category(name="code", values=CODES)
    assert warned(plain, 3000)
    assert not warned(CODE, 3000)
    assert warned(CODE, 500)

"""The page's script against the library: the same code, score, weight and ε for any text and scorer."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import STAYS, make_stays
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth import Release, datasets, report, synthesize
from repsynth.curator.dossier import dossier
from repsynth.errors import ConfigError
from repsynth.io.encode import encode_batch
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.report.own_bound import calculator, own_bound
from repsynth.run.run import run
from repsynth.schema import parse_schema
from repsynth.scoring.base import NAT
from repsynth.scoring.weights import FULL, STEP, WeightFunction

SIM = datasets.load("sim")
SCRIPT = Path(report.__file__).parent / "pages" / "own_bound.js"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the script")

FORMS = """
one_row_per_person = true
label = "smoker"
[columns.age]
type = "integer"
min = 18
max = 99
missing = true
special = ["-1", "unknown"]
[columns.rooms]
type = "integer"
min = -10
max = 90
step = 5
[columns.pay]
type = "number"
min = 0.0
max = 1e6
prefix = "CHF "
thousands = "'"
decimals = 2
[columns.rate]
type = "number"
min = -1.0
max = 1.0
decimal = ","
step = 0.1
[columns.weight]
type = "number"
min = -3.25
max = 1e9
[columns.joined]
type = "datetime"
min = 2015-01-01
max = 2025-12-31
special = ["never", "1900-01-01"]
[columns.seen]
type = "datetime"
min = 2015-01-01T00:00:00
max = 2025-12-31T23:59:59
[columns.born]
type = "datetime"
min = 1930-01-01
max = 2025-12-31
dates = "%d.%m.%Y"
special = ["9999", "unknown", "1900-01-01"]
[columns.left]
type = "datetime"
min = 2015-01-01
max = 2025-12-31
dates = "%Y-%d-%m"
[columns.called]
type = "datetime"
min = 1970-01-01T00:00:00
max = 2025-12-31T23:59:59
dates = "%d %b %y, %H:%M"
[columns.ended]
type = "datetime"
min = 2015-01-01
max = 2025-12-31
dates = "%Y%m%d"
special = ["9999"]
[columns.region]
type = "category"
values = ["north", "__proto__", "<b>", "3"]
[columns.code]
type = "category"
values = ["north", "03", "1"]
[columns.insured]
type = "boolean"
[columns.smoker]
type = "category"
values = ["no", "yes"]
"""


def by_script(
    release: Mapping[str, Any], people: Sequence[Any], call: str = "script.find(release, person)"
) -> list[dict[str, Any]]:
    """What the script says of each."""
    program = (
        f"const script = require({json.dumps(str(SCRIPT))});"
        "const { release, people } = JSON.parse(require('fs').readFileSync(0));"
        f"console.log(JSON.stringify(people.map((person) => {call})));"
    )
    given_to_it = json.dumps({"release": release, "people": people})
    done = subprocess.run(["node", "-e", program], input=given_to_it, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def sim_release(**options: Any) -> Release:
    table = SIM.table.slice(0, 2000)
    options = {"delta": 1e-6, "model": "naive-bayes", "public_rows": 2000} | options
    return synthesize(table, SIM.schema, **options)


def texts_of(row: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if cell is None else str(cell) for name, cell in row.items()}


@needs_node
@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
@pytest.mark.parametrize(
    ("scorer", "epsilon"),  # small: few wide bins and one threshold; large: many and several
    [("rarity", 0.5), ("rarity", 20.0), ("pairwise", 0.5), ("pairwise", 20.0), ("random", 4.0)],
)
def test_the_script_says_what_the_library_says(scorer: str, epsilon: float) -> None:
    release = sim_release(epsilon=epsilon, scorer=scorer)
    people = [texts_of(row) for row in SIM.table.slice(0, 40).to_pylist()]
    people += [dict.fromkeys(people[0]), dict.fromkeys(people[0], "?")]
    weights = set()
    for person, found in zip(people, by_script(calculator(release), people), strict=True):
        bound = own_bound(release, person)
        assert (found["score"], tuple(found["unknown"])) == (bound.score * NAT, bound.unknown)
        assert (found["weight"], found["epsilon"]) == (bound.weight * FULL, bound.epsilon)
        weights.add(bound.weight)
    assert len(weights) > 1


@needs_node
@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
@pytest.mark.parametrize("weights", ["targeted", "hinge-exp"])
def test_the_script_has_the_library_s_weight_at_every_edge(weights: str) -> None:
    """A score one unit below the first step weighs 1, and no less; the last weight is that of all beyond."""
    release = sim_release(epsilon=4.0, weights=weights)
    told, person = calculator(release), texts_of(SIM.table.slice(0, 1).to_pylist()[0])
    score, table = round(own_bound(release, person).score * NAT), release.weights.table
    edges = [0, STEP, 2 * STEP, len(table) * STEP, 10**9]
    starts = [score - edge + beside for edge in edges for beside in (-1, 0, 1, STEP - 1)]
    call = "script.find({...release, weights: {...release.weights, start: person.start}}, person.values)"
    moved = [{"start": start, "values": person} for start in starts]
    for start, found in zip(starts, by_script(told, moved, call), strict=True):
        assert found["weight"] == WeightFunction(start, table).of(np.array([score]))[0], score - start


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NUMBERS = st.one_of(
    st.floats(allow_nan=True).map(str),
    st.floats(-2, 120).map(lambda x: f"{x:.1f}"),
    st.integers(-100, 10**7).map(str),
    st.integers(0, 10**6).map(lambda x: f"CHF {x:,}.50".replace(",", "'")),
    st.integers(-20, 20).map(lambda x: f"{x / 10}".replace(".", ",")),
    st.sampled_from(
        ["-1", "-1.0", "unknown", "18.5", "19.5", "1e3", "5.", ".5", " 40 ", "--5", "1'2", "$5", "", "2.5"]
    ),
)
TIMES = st.one_of(
    st.dates().map(str),
    st.dates(date(1900, 1, 1)).map(lambda day: f"{day:%d.%m.%Y}"),
    st.dates(date(2010, 1, 1), date(2030, 1, 1)).map(lambda day: f"{day:%Y-%d-%m}"),
    st.datetimes(datetime(1960, 1, 1), datetime(2080, 1, 1)).map(
        lambda time: f"{time.day} {MONTHS[time.month - 1]} {time:%y, %H:%M}"
    ),
    st.datetimes().map(lambda t: t.isoformat(timespec="seconds")),
    st.sampled_from(
        [
            *(
                "never",
                "1900-01-01",
                "2020-02-30",
                "2020-02-29",
                "0000-01-01",
                "2020-13-01",
                "2020-1-1",
                "0001-01-01",
            ),
            *("2020-01-01T24:00:00", "2020-01-01 23:59", "2020-06-01T12:00:00Z", "2020-06-01T12:00:00+05:30"),
            *("2020-06-01T12:00:00.999-02", "2020-01-01T12:60", "9999-12-31"),
            *(
                "9999",
                "9999.0",
                " 9999 ",
                "9999.5",
                "31.1.2020",
                "31.02.2020",
                "1.13.2020",
                "2020-03-04",
                "5.06.20",
                "20200131",
                "20200131.0",
                "2.0200131e7",
            ),
            *("3 feb 99, 7:05", "03 FEB 68, 23:59", "3  Feb 69, 00:00", "3 Feb 99, 24:00", "3 February 99, 1:00"),
        ]
    ),
)
WORDS = st.sampled_from(
    [
        "north",
        "__proto__",
        "<b>",
        "3",
        "3.0",
        "yes",
        "NO",
        "True",
        "t",
        "1",
        "0.0",
        " no ",
        "constructor",
        "03",
        "+1",
        "1e0",
    ]
)


@cache
def forms_release() -> Release:
    schema = parse_schema(FORMS)
    nobody = pa.table({column.name: pa.array([], type=pa.string()) for column in schema.columns})
    return synthesize(nobody, schema, epsilon=1.0, delta=1e-6, model="naive-bayes", public_rows=10)


@needs_node
@settings(max_examples=10)
@given(
    st.lists(st.fixed_dictionaries({"number": NUMBERS, "time": TIMES, "word": WORDS}), min_size=20, max_size=60)
)
def test_the_script_reads_texts_as_the_library_does(drawn: list[dict[str, str]]) -> None:
    release = forms_release()
    kinds = {"age": "number", "rooms": "number", "pay": "number", "rate": "number", "weight": "number"}
    kinds |= {"joined": "time", "seen": "time", "born": "time", "left": "time", "called": "time", "ended": "time"}
    kinds |= {"region": "word", "code": "word", "insured": "word", "smoker": "word"}
    people = [{name: each[kind] for name, kind in kinds.items()} for each in drawn]
    table = pa.table({name: [person[name] for person in people] for name in kinds})
    codes = encode_batch(table.to_batches()[0], release.schema).codes
    for i, found in enumerate(by_script(calculator(release), people)):
        assert found["codes"] == {name: int(column[i]) for name, column in codes.items()}


def test_a_value_that_is_not_known_gives_the_bound_of_anybody() -> None:
    """Nothing may be missing here, so who leaves something out, or writes it otherwise, is not yet an outlier."""
    release = sim_release(epsilon=1.0, weights="targeted")
    outlier = {f"x{i}": "5.99" for i in range(1, 7)} | {"c1": "Z", "c2": "Q", "c3": "R", "label": "1"}
    assert own_bound(release, outlier).epsilon < 0.5 * release.privacy.epsilon
    for values in ({}, outlier | {"x1": None}, outlier | {"x1": "5,99"}, outlier | {"c1": "?"}):
        bound = own_bound(release, values)
        assert bound.unknown
        assert (bound.weight, bound.epsilon) == (1.0, release.privacy.epsilon)
    with pytest.raises(ConfigError, match="no column 'age'"):
        own_bound(release, {"age": 40})


def test_the_bound_is_that_of_the_record() -> None:
    """By the account: the loss at the weight of the record's score."""
    release, row = sim_release(epsilon=4.0), SIM.table.slice(17, 1)
    bound = own_bound(release, texts_of(row.to_pylist()[0]))
    texts = pa.record_batch({name: row[name].cast(pa.string()).combine_chunks() for name in row.column_names})
    score = release.score.of(encode_batch(texts, release.schema))
    weight = release.weights.of(score)[0] / FULL
    assert (bound.weight, bound.epsilon) == (weight, float(release.privacy.epsilon_at(np.float64(weight))))


@cache
def stays_release(rows: int) -> tuple[Release, pa.Table]:
    table = make_stays(300, 1)
    schema = parse_schema(STAYS.replace("rows = 1", f"rows = {rows}"))
    plan = make_plan(schema, Settings.of(epsilon=4.0, delta=1e-9, model="mst"))
    return run(plan, open_source(table), noise_seed=1), table


def by_person(table: pa.Table, learned: Sequence[str]) -> dict[str, list[dict[str, str | None]]]:
    people: dict[str, list[dict[str, str | None]]] = {}
    for row in table.to_pylist():
        people.setdefault(row["patient"], []).append({name: str(row[name]) for name in learned})
    return people


def script_of_persons(release: Mapping[str, Any], people: Sequence[tuple[Any, int]]) -> list[dict[str, Any]]:
    return by_script(release, people, call="script.ofPerson(release, ...person)")


@needs_node
@pytest.mark.parametrize("rows", [1, 3])
def test_a_person_with_several_rows_has_the_bound_of_the_dossier_or_a_larger_one(rows: int) -> None:
    release, table = stays_release(rows)
    losses = dossier(table, release)[0]
    told = dict(zip(table["patient"].to_pylist(), losses["realised_epsilon"].to_pylist(), strict=True))
    people = by_person(table, [column.name for column in release.schema.learned])
    told_by_page = script_of_persons(calculator(release), [(own, len(own)) for own in people.values()])
    for who, page in zip(people, told_by_page, strict=True):
        assert page["high"] == page["low"]
        assert page["high"]["epsilon"] >= told[who]
    some = list(zip(people.items(), told_by_page, strict=True))[:40]
    bounds = [own_bound(release, own) for (_, own), _ in some]
    for ((who, _), page), bound in zip(some, bounds, strict=True):
        assert told[who] >= bound.epsilon * (1 - 1e-12)
        assert page["high"]["epsilon"] <= float(release.privacy.epsilon_at(bound.weight + 0.001)) * (1 + 1e-6)
    firsts = [own_bound(release, own[0]) for (_, own), _ in some]
    gaps = [both.epsilon / first.epsilon for both, first in zip(bounds, firsts, strict=True)]
    assert max(gaps) > 1.5 or rows > 1, "one row alone promises too much"


@needs_node
def test_until_all_rows_are_entered_the_page_shows_the_range() -> None:
    release, table = stays_release(1)
    tables, weights = calculator(release), release.weights.table / FULL
    people = by_person(table, [column.name for column in release.schema.learned])
    own = next(rows for rows in people.values() if len(rows) == 4)
    for known in range(5):
        nothing: list[dict[str, str | None]] = [dict.fromkeys(own[0])] * (4 - known)
        sums = sum(own_bound(release, row).weight for row in own[:known])
        low, high = ((sums + (4 - known) * rest) / 4 for rest in (weights.min(), 1.0))
        ways = (own[:known], own[:known] + nothing, [*own[:known], own[0] | {"age": "?"}][:4])
        for page in script_of_persons(tables, [(entered, 4) for entered in ways]):
            assert page["rest"] == 4 - known
            assert abs(page["low"]["weight"] / FULL - low) < 0.001
            assert abs(page["high"]["weight"] / FULL - high) < 0.001
    (many,) = script_of_persons(tables, [([], 5000)])
    assert many["high"]["weight"] == 0, "with more than 4,096 rows none counts"


def test_several_rows_need_a_schema_with_persons() -> None:
    release = sim_release(epsilon=1.0)
    with pytest.raises(ConfigError, match="give one row: the schema of this release has no"):
        own_bound(release, [{}, {}])
    with pytest.raises(ConfigError, match="give a row"):
        own_bound(release, [])
    assert calculator(release)["person"] is None

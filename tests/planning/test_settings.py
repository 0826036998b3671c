"""Each knob is written once: keywords, flags, plan.toml and releases follow from the same struct."""

import inspect
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import ALL_TYPES, make_people
from hypothesis import given
from hypothesis import strategies as st

import repsynth
from repsynth.arrays import Floats
from repsynth.cli.main import make_app
from repsynth.errors import ConfigError, SchemaError
from repsynth.knobs import Knob, knobs_of
from repsynth.models.registry import MODELS
from repsynth.planning.settings import PARTS, Settings, keywords, read_settings, settings_to_toml, with_given
from repsynth.schema import Category, Integer, Schema, parse_schema
from repsynth.scoring.weights import RULES, Rule


def test_every_knob_is_a_keyword_a_flag_and_has_a_description() -> None:
    found = make_app(["synthesize"])["synthesize"].assemble_argument_collection()
    flags = {flag for argument in found for flag in argument.names}
    shown = inspect.signature(repsynth.plan).parameters
    assert inspect.signature(repsynth.synthesize).parameters.keys() >= shown.keys()
    assert len(keywords()) >= 15
    for knob in keywords().values():
        assert knob.flag in flags
        assert len(knob.describe()) > 10
    for part in PARTS:
        assert f"--{part}" in flags
        assert part in shown


def within(knob: Knob) -> st.SearchStrategy[Any]:
    meta = knob.meta
    if {int, float}.isdisjoint(knob.kinds):
        return st.sampled_from(["predict", "tables", "any"])
    low = meta.ge if meta.ge is not None else 1e-3
    high = meta.le if meta.le is not None else 0.9
    if float in knob.kinds:
        return st.floats(float(low), float(high))
    return st.integers(int(low), int(high))


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    given: dict[str, Any] = {}
    for knob in knobs_of(Settings):
        if draw(st.booleans()):
            given[knob.name] = draw(within(knob))
    for part, registry in PARTS.items():
        kind = registry[draw(st.sampled_from(sorted(registry)))]
        given[part] = kind(**{knob.name: draw(within(knob)) for knob in knobs_of(kind)})
    return Settings.of(**given)


@given(all_settings())
def test_settings_survive_a_file_and_a_release(settings: Settings) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.toml"
        path.write_text(settings_to_toml(settings), encoding="utf-8")
        assert Settings.of(**read_settings(path)) == settings
    assert Settings.load(settings.dump()) == settings


def test_a_model_is_a_name_or_an_object_and_its_knobs_may_stand_beside_it() -> None:
    made = [
        Settings.of(epsilon=1.0, model="autoregressive", epochs=3),
        Settings.of(epsilon=1.0, model=repsynth.Autoregressive(epochs=3)),
    ]
    assert made[0] == made[1] == Settings.of(epsilon=1.0, epochs=3)
    release = repsynth.synthesize(make_people(60), parse_schema(ALL_TYPES), epsilon=3.0, model=repsynth.Mst())
    assert release.plan.model == repsynth.Mst()
    with pytest.raises(ConfigError, match="give epochs to the model itself"):
        Settings.of(model=repsynth.Autoregressive(), epochs=3)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"outlier_fraction": 0.7}, "outlier fraction is 0.7; it must lie between 0.01 and 0.5"),
        ({"epsilon": -1}, "epsilon is -1; it must be above 0 and at most 100"),
        ({"epsilon": "one"}, "epsilon must be a number"),
        ({"epsilon": True}, "epsilon must be a number"),
        ({"epsilon": 10**400}, "epsilon must be a number"),
        ({"epsilon": float("nan")}, "epsilon must be a number"),
        ({"public_rows": 10.5}, "public rows must be a whole number"),
        ({"score_share": "tenth"}, "score share must be a number"),
        ({"epsilom": 1}, r"there is no setting 'epsilom' \(did you mean 'epsilon'\?\)"),
        ({"model": "msd"}, r"unknown model 'msd' \(did you mean 'mst'\?\)"),
        ({"gamma": 1.0}, "gamma belongs to the weight rule hinge-exp; targeted has none"),
        ({"weights": "random", "scorer": "rarity"}, "random weights have random scores"),
        ({"epochs": 3, "model": "mst"}, "epochs belongs to the model autoregressive; mst has none"),
        ({"weights": "hinge-exp", "gamma": 101}, "gamma is 101; it must be above 0 and at most 100"),
    ],
)
def test_a_wrong_knob_is_one_clear_line(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        repsynth.plan(parse_schema(ALL_TYPES), settings=Settings.of(**{"epsilon": 1.0, **knobs}))


def test_numbers_of_numpy_are_kept_as_plain_ones() -> None:
    settings = Settings.of(epsilon=np.float64(1), public_rows=np.int64(500), outlier_epsilon=np.float32(0.5))
    kinds = [type(v) for v in (settings.epsilon, settings.public_rows, settings.outlier_epsilon)]
    assert kinds == [float, int, float]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = ", "not valid TOML"),
        ('[model]\nname = "nothing"', "model 'nothing', which this version lacks"),
        ('[model]\nname = "mst"\nepochs = 3', "epochs belongs to the model autoregressive; mst has none"),
        ("[weights]\ngamma = 3", "weight rule without a name"),
    ],
)
def test_a_damaged_plan_file_is_one_clear_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_settings(tmp_path / "plan.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.toml")


def test_keywords_beside_a_file_count_more(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(settings_to_toml(Settings.of(epsilon=1.0, model="mst", outlier_fraction=0.2)))
    plan = repsynth.plan(parse_schema(ALL_TYPES), settings=path, outlier_fraction=0.1)
    assert (plan.model.name, plan.outlier_fraction, plan.settings.epsilon) == ("mst", 0.1, 1.0)


def test_the_registries_hold_what_they_name() -> None:
    for registry in (MODELS, RULES):
        for name, kind in registry.items():
            assert kind.name == name
            assert registry.load(registry.dump(kind())) == kind()


class Secret(Rule, frozen=True):
    """A field that is no knob."""

    name: ClassVar[str] = "secret"
    power: float = 3.0


class Impostor(repsynth.Targeted, frozen=True):
    """Called as another."""

    def weight(self, above: Floats, span: float) -> Floats:
        return np.full_like(above, 0.9)


def test_settings_made_in_python_are_checked_as_those_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema(ALL_TYPES)
    with pytest.raises(ConfigError, match="cannot be saved with a release"):
        repsynth.plan(schema, settings=Settings(epsilon=1.0, weights=Impostor()))
    monkeypatch.setitem(RULES, "secret", Secret)
    with pytest.raises(ConfigError, match="power is no knob"):
        repsynth.plan(schema, epsilon=1.0, weights="secret")


NUMBER = Integer(name="a", min=0, max=9)


def categories(*values: str, missing: bool = False) -> tuple[Integer, Category]:
    return NUMBER, Category(name="b", values=values, missing=missing)


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        (categories(), None),
        ((Integer(name="a", min=9, max=0),), None),
        ((Integer(name="a", min=9, max=9),), None),
        ((Integer(name="a", min=0, max=2**64),), None),
        ((NUMBER, NUMBER), None),
        (categories(" u", "v"), None),
        (categories("v", "v"), None),
        (categories("v"), "b"),
        (categories("u", "v", missing=True), "b"),
        ((NUMBER,), "z"),
    ],
    ids=range(10),
)
def test_a_schema_made_in_python_is_checked_as_that_of_a_file(columns: Any, label: str | None) -> None:
    with pytest.raises(SchemaError):
        repsynth.plan(Schema(one_row_per_person=True, columns=columns, label=label), epsilon=1.0)


def test_a_file_may_leave_the_model_open(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    settings = Settings.of(epsilon=1.0)
    path.write_text(settings_to_toml(settings), encoding="utf-8")
    assert "[model]" not in path.read_text(encoding="utf-8")
    assert Settings.of(**read_settings(path)) == settings
    assert Settings.of(**with_given(read_settings(path), {"model": "mst"})).model == repsynth.Mst()

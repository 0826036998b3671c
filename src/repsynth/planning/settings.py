"""The settings of a run, and their file `plan.toml`."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from repsynth.errors import ConfigError, has_controls, shown
from repsynth.knobs import Knob, Knobs, Registry, did_you_mean, knobs_of
from repsynth.models.base import Model
from repsynth.models.registry import MODELS
from repsynth.schema.parse import read_toml
from repsynth.scoring import SCORERS
from repsynth.scoring.base import Scorer
from repsynth.scoring.rarity import Random, Rarity
from repsynth.scoring.weights import RULES, Rule, Targeted

BUDGET, OUTLIERS, SPLIT, MODEL = (
    "budget (exactly one of epsilon, mu, rho)",
    "outliers",
    "split of the budget (shares of mu²)",
    "model",
)
"""The groups of settings in `--help`."""

PARTS: dict[str, Registry[Any]] = {"weights": RULES, "scorer": SCORERS, "model": MODELS}
"""The settings that are objects with their own settings."""

_MOST_BYTES = 2**20
_BUDGETS = ("epsilon", "mu", "rho")


def _knob(group: str, description: str, **bounds: Any) -> Meta:
    extra = {"group": group} | ({"metavar": bounds.pop("metavar")} if "metavar" in bounds else {})
    return Meta(description=description, extra=extra, **bounds)


class Settings(Knobs, frozen=True, kw_only=True):
    """All settings of a run except the data and its schema. Shares are shares of μ².

    >>> Settings.of(epsilon=1.0, model="mst", gamma=2.0, weights="hinge-exp").weights
    HingeExp(gamma=2.0)
    >>> Settings.of(epsilon=1.0, model="mst", epochs=3)
    Traceback (most recent call last):
    repsynth.errors.ConfigError: epochs belongs to the model autoregressive; mst has none
    """

    name: ClassVar[str] = "settings"

    epsilon: Annotated[
        float | None, _knob(BUDGET, "total privacy loss; 1 is strong, 10 is weak", gt=0, le=100)
    ] = None
    mu: Annotated[float | None, _knob(BUDGET, "the same in Gaussian DP", gt=0, le=1e6)] = None
    rho: Annotated[float | None, _knob(BUDGET, "the same in zero-concentrated DP", gt=0, le=5e11)] = None
    delta: Annotated[
        float | None, _knob(BUDGET, "(default: 1/N², at most 1e-5, where N rows are public; else 1e-9)")
    ] = None
    public_rows: Annotated[
        int | None,
        _knob(
            BUDGET,
            "the number of records (with [person], of persons), if it is public; else it is measured",
            metavar="N",
            ge=1,
            le=10**12,
        ),
    ] = None
    weights: Rule | None = None
    """None means the default for the budget and the declared number of records."""
    scorer: Scorer = Rarity()
    outlier_epsilon: Annotated[
        float | None, _knob(OUTLIERS, "bring every record above the threshold to at most this", metavar="E", gt=0)
    ] = None
    outlier_fraction: Annotated[
        float, _knob(OUTLIERS, "fraction of records to protect", metavar="F", ge=0.01, le=0.5)
    ] = 0.3
    max_lost_mass: Annotated[
        float | None,
        _knob(
            OUTLIERS,
            "use the strongest weights whose estimated mean loss is at most M",
            metavar="M",
            gt=0,
            le=0.5,
        ),
    ] = None
    score_share: Annotated[
        float | None, _knob(SPLIT, "for the histograms ({default})", metavar="S", ge=1e-6, le=0.9)
    ] = None
    threshold_share: Annotated[
        float, _knob(SPLIT, "for the histogram of the scores", metavar="S", ge=1e-6, le=0.9)
    ] = 0.01
    count_share: Annotated[
        float, _knob(SPLIT, "for the number of records, unless it is public", metavar="S", ge=1e-6, le=0.9)
    ] = 0.005
    model: Model | None = None
    """None means the default for the schema."""
    max_model_mb: Annotated[
        int, _knob(MODEL, "memory for the tables of mst and aim, or a network", metavar="MB", ge=1, le=10**6)
    ] = 1000

    @classmethod
    def of(cls, **knobs: Any) -> "Settings":
        """Return settings from keywords, including the settings of a model, scorer or weight rule.

        None means the default.
        """
        knobs = {name: value for name, value in knobs.items() if value is not None}
        if knobs.get("weights") == "random":  # an ablation: `targeted` weights with random scores
            if knobs.get("scorer", "random") not in ("random", Random()):
                raise ConfigError(
                    "random weights have random scores; leave the scorer out, or choose other weights"
                )
            knobs |= {"weights": "targeted", "scorer": "random"}
        own = {field.name for field in msgspec.structs.fields(cls)}
        for part, registry in PARTS.items():
            mine = {name: knobs.pop(name) for name in list(knobs) if name not in own and name in registry.knobs()}
            default = cls.__struct_defaults__[cls.__struct_fields__.index(part)]
            if mine and part not in knobs:  # a setting of an unnamed part determines the part
                named = Targeted() if part == "weights" else default
                knobs[part] = named.name if named else registry.owner(next(iter(mine)))
            if part in knobs:
                knobs[part] = registry.make(knobs[part], **mine)
        for name in knobs.keys() - own:
            raise ConfigError(f"there is no setting '{name}'{did_you_mean(name, keywords())}")
        return cls(**knobs)

    def dump(self) -> dict[str, Any]:
        """Return plain data without the settings that are None."""
        own = {knob.name: getattr(self, knob.name) for knob in knobs_of(type(self))}
        parts = {part: registry.dump(value) for part, registry in PARTS.items() if (value := getattr(self, part))}
        return {name: value for name, value in own.items() if value is not None} | parts

    @classmethod
    def load(cls, table: dict[str, Any]) -> "Settings":
        """Return settings from plain data, which is untrusted."""
        parts = {
            part: registry.load(table[part] if isinstance(table[part], dict) else {"name": table[part]})
            for part, registry in PARTS.items()
            if part in table
        }
        return cls.of(**{**table, **parts})


def keywords() -> dict[str, Knob]:
    """Return every setting that is not a part, by name, including those of all parts."""
    found = {knob.name: knob for knob in knobs_of(Settings)}
    for registry in PARTS.values():
        found |= {name: knob for name, (knob, _) in registry.knobs().items()}
    return found


def settings_to_toml(settings: Settings) -> str:
    """Return the text of a `plan.toml`.

    >>> print(settings_to_toml(Settings.of(epsilon=1.0, delta=1e-6)).splitlines()[2])
    epsilon = 1.0  # total privacy loss; 1 is strong, 10 is weak
    """
    lines = ["# The settings of a run: repsynth synthesize DATA --schema SCHEMA --plan THIS", ""]
    lines += _lines(knobs_of(Settings), settings)
    for part in PARTS:
        if value := getattr(settings, part):
            lines += ["", f"[{part}]", f"name = {json.dumps(value.name)}", *_lines(knobs_of(type(value)), value)]
    return "\n".join(lines) + "\n"


def _lines(knobs: tuple[Knob, ...], values: Any) -> list[str]:
    lines = []
    for knob in knobs:
        value = getattr(values, knob.name)
        if value is not None:
            text = json.dumps(value) if isinstance(value, str) else repr(value)
            lines.append(f"{knob.name} = {text}  # {knob.describe()}")
    return lines


def read_settings(path: Path) -> dict[str, Any]:
    """Return the keywords in a `plan.toml`. `Settings.of` checks them."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{shown(path)}: larger than 1 MB; is this a plan?")
        table = read_toml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{shown(path)}: not UTF-8 text; save the plan as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        detail = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "too deep or malformed"
        raise ConfigError(f"{shown(path)}: not valid TOML: {detail}") from None
    if has_controls(table):
        raise ConfigError(f"{shown(path)}: a name or a value has a control character; take it out")
    try:
        return {
            key: PARTS[key].load(value) if key in PARTS and isinstance(value, dict) else value
            for key, value in table.items()
        }
    except ConfigError as error:
        raise ConfigError(f"{shown(path)}: {error}") from None


def with_given(kept: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a file, overridden by those `given`.

    A given budget replaces the file's. A given part replaces the file's part with all its settings; a single
    setting of a part changes only that one.

    >>> kept = {"epsilon": 1.0, "weights": PARTS["weights"].make("hinge-exp", gamma=2.0)}
    >>> with_given(kept, {"rho": 0.1, "gamma": 3.0})
    {'weights': HingeExp(gamma=3.0), 'rho': 0.1}
    """
    kept, given = dict(kept), {name: value for name, value in given.items() if value is not None}
    replaced = set(_BUDGETS) if given.keys() & set(_BUDGETS) else set()
    if given.get("weights") == "random":
        replaced.add("scorer")
    for part, registry in PARTS.items():
        knobs = registry.knobs().keys()
        if part in given:
            replaced |= {part, *knobs}
        elif isinstance(kept.get(part), Knobs):
            mine = {name: given.pop(name) for name in knobs & given.keys()}
            kept[part] = registry.load(registry.dump(kept[part]) | mine)
    return {name: value for name, value in kept.items() if name not in replaced} | given

"""Settings as a file: `plan.toml`, with each knob's description beside it."""

import json
import tomllib
from pathlib import Path
from typing import Any

from repsynth.errors import ConfigError, has_controls, shown
from repsynth.knobs import Knob, Knobs, knobs_of
from repsynth.planning.choose import AUTO
from repsynth.planning.settings import PARTS, Settings, load_part
from repsynth.schema.parse import read_toml

_MOST_BYTES = 2**20
_BUDGETS = ("epsilon", "mu", "rho")


def settings_to_toml(settings: Settings) -> str:
    """The text of a `plan.toml`.

    >>> print(settings_to_toml(Settings.of(epsilon=1.0, delta=1e-6)).splitlines()[2])
    epsilon = 1.0  # total privacy loss; 1 is strong, 10 is weak
    """
    lines = ["# The settings of a run: repsynth synthesize DATA --schema SCHEMA --plan THIS", ""]
    lines += _lines(knobs_of(Settings), settings)
    for part in PARTS:
        value = getattr(settings, part)
        name, knobs = (AUTO, ()) if value is None else (value.name, knobs_of(type(value)))
        lines += ["", f"[{part}]", f"name = {json.dumps(name)}", *_lines(knobs, value)]
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
    """The keywords that a `plan.toml` holds, checked when settings are made of them."""
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
            key: load_part(key, value) if key in PARTS and isinstance(value, dict) else value
            for key, value in table.items()
        }
    except ConfigError as error:
        raise ConfigError(f"{shown(path)}: {error}") from None


def with_given(kept: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a file and those given beside it, which count more: another budget takes the place of the
    file's, another part that of the file's with all its knobs, and a knob alone that of the file's part.

    >>> kept = {"epsilon": 1.0, "weights": PARTS["weights"].make("hinge-exp", gamma=2.0)}
    >>> with_given(kept, {"rho": 0.1, "gamma": 3.0})
    {'weights': HingeExp(gamma=3.0), 'rho': 0.1}
    """
    kept, given = dict(kept), {name: value for name, value in given.items() if value is not None}
    replaced = set(_BUDGETS) if given.keys() & set(_BUDGETS) else set()
    if given.get("weights") == "random":
        replaced.add("scorer")
    if given.get("model", AUTO) != AUTO:
        replaced.add("goal")
    for part, registry in PARTS.items():
        knobs = registry.knobs().keys()
        if part in given:
            replaced |= {part, *knobs}
        elif isinstance(kept.get(part), Knobs):
            mine = {name: given.pop(name) for name in knobs & given.keys()}
            kept[part] = registry.load(registry.dump(kept[part]) | mine)
    return {name: value for name, value in kept.items() if name not in replaced} | given

"""Settings are declared once, as fields of a frozen struct with bounds and a description.

The command-line flag, the line in `plan.toml` and the entry in a release follow from the field. Models, scorers
and weight rules are such structs in a `Registry`: a new one is one file and one line. A registry makes a part from
a name and settings only, so no file can name code to import.
"""

import difflib
import math
import numbers
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from repsynth.errors import ConfigError, shown


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A struct of knobs; making one checks the bounds of each.

    >>> from typing import Annotated
    >>> class Kettle(Knobs, frozen=True):
    ...     name: ClassVar[str] = "kettle"
    ...     degrees: Annotated[float, msgspec.Meta(ge=0, le=100, description="how hot")] = 90
    >>> Kettle(degrees=50).degrees
    50.0
    >>> Kettle(degrees=101)
    Traceback (most recent call last):
    repsynth.errors.ConfigError: degrees is 101; it must lie between 0 and 100
    """

    name: ClassVar[str]
    """What this kind is called on the command line and in files."""

    def __post_init__(self) -> None:
        for knob in knobs_of(type(self)):
            msgspec.structs.force_setattr(self, knob.name, knob.checked(getattr(self, knob.name)))


@dataclass(frozen=True)
class Knob:
    """A setting: a number or a text, or None if it may be left open."""

    name: str
    kinds: tuple[type, ...]
    default: Any
    meta: msgspec.Meta
    flag: str

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    def describe(self) -> str:
        """Return the description and, if it does not say it, the default."""
        text = self.meta.description or ""
        open_ended = self.default is None or self.default is msgspec.NODEFAULT or "default" in text
        return text.replace("{default}", "by model") if open_ended else f"{text} ({self.default:g})"

    def checked(self, value: Any) -> Any:
        """Return the value as a plain number or text, or raise a ConfigError."""
        if value is None and NoneType in self.kinds:
            return None
        if isinstance(value, str) and str in self.kinds:
            return value
        numeric = _is_number(value) and not {int, float}.isdisjoint(self.kinds)
        if not numeric or (float not in self.kinds and value != int(value)):
            raise ConfigError(f"{self.words} must be {self._wanted()}")
        kept = float(value) if float in self.kinds else int(value)
        self._check_bounds(kept)
        return kept

    def _check_bounds(self, value: float) -> None:
        least, most, above = self.meta.ge, self.meta.le, self.meta.gt
        low = value >= least if least is not None else above is None or value > above
        if low and (most is None or value <= most):
            return
        if least is not None and most is not None:
            bounds = f"lie between {least:,} and {most:,}"
        elif most is not None:
            bounds = f"be above {above:,} and at most {most:,}"
        else:
            bounds = f"be above {above:,}" if least is None else f"be at least {least:,}"
        raise ConfigError(f"{self.words} is {value:g}; it must {bounds}")

    def _wanted(self) -> str:
        return "a number" if float in self.kinds else "a whole number" if int in self.kinds else "text"


def _is_number(value: Any) -> bool:
    """Accept Python's and NumPy's numbers that a float can hold, but not True, NaN or infinity."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_KNOBS: dict[type, tuple[Knob, ...]] = {}


def knobs_of(kind: type[msgspec.Struct]) -> tuple[Knob, ...]:
    """Return the knobs of a struct: its fields that have a description."""
    if kind not in _KNOBS:
        hints = typing.get_type_hints(kind, include_extras=True)
        found = []
        for field in msgspec.structs.fields(kind):
            metas = [m for m in getattr(hints[field.name], "__metadata__", ()) if isinstance(m, msgspec.Meta)]
            if metas:
                inner = typing.get_args(hints[field.name])[0]
                flag = f"--{field.name.replace('_', '-')}"
                found.append(Knob(field.name, typing.get_args(inner) or (inner,), field.default, metas[0], flag))
        _KNOBS[kind] = tuple(found)
    return _KNOBS[kind]


Part = TypeVar("Part", bound=Knobs)


class Registry(dict[str, type[Part]], Generic[Part]):
    """The kinds of one part, by name.

    >>> from typing import Annotated
    >>> class Kettle(Knobs, frozen=True):
    ...     name: ClassVar[str] = "kettle"
    ...     degrees: Annotated[float, msgspec.Meta(ge=0, le=100, description="how hot")] = 90.0
    >>> stoves = Registry("stove", [Kettle])
    >>> stoves.dump(stoves.make("kettle", degrees=40))
    {'name': 'kettle', 'degrees': 40.0}
    """

    def __init__(self, what: str, kinds: Iterable[type[Part]]) -> None:
        super().__init__({kind.name: kind for kind in kinds})
        self.what = what

    def make(self, part: str | Part, **knobs: Any) -> Part:
        """Make a part from its name and knobs, or return the given part if a file can hold it."""
        if isinstance(part, str):
            kind = self.get(part)
            if kind is None:
                raise ConfigError(
                    f"unknown {self.what} '{shown(part)}'{did_you_mean(part, self)}; use one of {', '.join(self)}"
                )
            own = {knob.name for knob in knobs_of(kind)}
            for name in knobs.keys() - own:
                raise ConfigError(f"{name.replace('_', ' ')} {self._belongs(name)}; {part} has none")
            return kind(**knobs)
        if not isinstance(part, Knobs) or self.get(part.name) is not type(part):
            raise ConfigError(
                f"this {self.what} cannot be saved with a release; register its type first, or use one of "
                f"{', '.join(self)}. Nothing was spent"
            )
        if knobs:
            raise ConfigError(f"give {', '.join(knobs)} to the {self.what} itself, not beside it")
        return part

    def knobs(self) -> dict[str, tuple[Knob, list[str]]]:
        """Return every knob by its name, and the kinds that have it."""
        found: dict[str, tuple[Knob, list[str]]] = {}
        for name, kind in self.items():
            for knob in knobs_of(kind):
                found.setdefault(knob.name, (knob, []))[1].append(name)
        return found

    def owner(self, knob: str) -> str:
        """Return the only kind that has a knob. The knob then chooses it.

        >>> Registry("stove", []).owner("degrees")
        Traceback (most recent call last):
        repsynth.errors.ConfigError: degrees is no knob of a stove; name the stove
        """
        owners = self._owners(knob)
        if len(owners) != 1:
            raise ConfigError(f"{knob.replace('_', ' ')} {self._belongs(knob)}; name the {self.what}")
        return owners[0]

    def dump(self, part: Part) -> dict[str, Any]:
        return {"name": part.name, **msgspec.to_builtins(part)}

    def load(self, table: Mapping[str, Any]) -> Part:
        """Make a part from plain data, which is untrusted."""
        knobs = dict(table)
        name = knobs.pop("name", None)
        if not isinstance(name, str) or name not in self:
            known = f"'{name[:40]}'" if isinstance(name, str) else "without a name"
            raise ConfigError(f"it has a {self.what} {known}, which this version lacks")
        return self.make(name, **knobs)

    def _owners(self, knob: str) -> list[str]:
        return self.knobs().get(knob, (None, []))[1]

    def _belongs(self, knob: str) -> str:
        owners = self._owners(knob)
        return f"belongs to the {self.what} {' and '.join(owners)}" if owners else f"is no knob of a {self.what}"


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a hint for a message, or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""

"""Command-line flags from the settings: each knob is written once, in its struct."""

import argparse
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from repsynth.data.reading import READING, ReadOptions
from repsynth.engines import Place
from repsynth.knobs import Knob, Registry, knobs_of
from repsynth.planning.settings import BUDGET, MODEL, OUTLIERS, PARTS, SPLIT, Settings, keywords

_GROUP_OF_PART = {"weights": OUTLIERS, "scorer": OUTLIERS, "model": MODEL}
_BUDGET_KNOBS = ("epsilon", "mu", "rho", "delta")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", type=Path, required=True, help="schema.toml: what is publicly known")
    parser.add_argument(
        "--plan", type=Path, metavar="TOML", help="settings from a file; flags beside it count more (plan --save)"
    )
    groups = {title: parser.add_argument_group(title) for title in (BUDGET, OUTLIERS, SPLIT, MODEL)}
    own = {knob.name: knob for knob in knobs_of(Settings)}
    for name in Settings.__struct_fields__:
        if name in own:
            _add(groups[(own[name].meta.extra or {})["group"]], own[name], own[name].describe())
        else:
            _add_part(groups[_GROUP_OF_PART[name]], name, PARTS[name])
    groups[OUTLIERS].add_argument(
        "--scores-from",
        type=Path,
        metavar="RELEASE",
        help="an earlier release of the same columns: its score function and threshold cost nothing",
    )


def add_table(parser: argparse.ArgumentParser, *names: str, help: str, **options: Any) -> None:
    """A table: one or more files, a folder, a pattern, or the address of a database."""
    parser.add_argument(*names, metavar="DATA", nargs=options.pop("nargs", "+"), help=help, **options)


def add_reading(parser: argparse.ArgumentParser) -> None:
    _add_all(parser.add_argument_group("the table"), knobs_of(ReadOptions))


def add_budget(parser: argparse.ArgumentParser) -> None:
    _add_all(parser, (knob for knob in knobs_of(Settings) if knob.name in _BUDGET_KNOBS))


def add_place(parser: argparse.ArgumentParser) -> None:
    _add_all(parser, knobs_of(Place))


def reading_of(options: argparse.Namespace) -> ReadOptions:
    return ReadOptions(**given_reading(options))


def given_reading(options: argparse.Namespace) -> dict[str, Any]:
    """How the table is to be read, as keywords."""
    return _given(options, READING)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line, as keywords."""
    return _given(options, [*PARTS, *keywords()])


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def _add_part(group: argparse._ArgumentGroup, part: str, registry: Registry[Any]) -> None:
    default = Settings.__struct_defaults__[Settings.__struct_fields__.index(part)]
    kinds = "; ".join(f"{name}: {_first_sentence(kind)}" for name, kind in registry.items())
    name = "default: aim, or naive-bayes for a single column" if default is None else default.name
    group.add_argument(f"--{part}", metavar="NAME", help=f"{kinds} ({name})".replace("%", "%%"))
    for knob, owners in registry.knobs().values():
        _add(group, knob, f"{', '.join(owners)}: {knob.describe()}")


def _add_all(parser: argparse._ActionsContainer, knobs: Iterable[Knob]) -> None:
    for knob in knobs:
        _add(parser, knob, knob.describe())


def _add(parser: argparse._ActionsContainer, knob: Knob, text: str) -> None:
    extra = knob.meta.extra or {}
    parser.add_argument(
        extra.get("flag", knob.flag),
        dest=knob.name,
        type=_type(knob),
        metavar=extra.get("metavar"),
        help=text.replace("%", "%%"),
    )


def _type(knob: Knob) -> Callable[[str], Any]:
    return float if float in knob.kinds else int if int in knob.kinds else str


def _first_sentence(kind: type) -> str:
    text = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return text.split(". ")[0].split(": ")[0] if len(text) > 70 else text

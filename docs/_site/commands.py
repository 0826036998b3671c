"""Make the command-line reference as Markdown from the parsers themselves."""

import inspect
import re
from collections.abc import Iterator

from cyclopts import App, Argument

from repsynth.cli.options import COMMANDS

_FIRST = ("Arguments", "Parameters")
"""Groups that need no title."""


def reference(app: App) -> str:
    """Return a section for every command, in the order of `--help`."""
    return "\n\n".join(_section(app, name) for name in COMMANDS)


def _section(app: App, name: str) -> str:
    parts = [f"## repsynth {name}"]
    for paragraph in (inspect.getdoc(COMMANDS[name]) or "").split("\n\n"):
        example = paragraph.startswith("$ ")
        parts.append(f"```console\n{paragraph}\n```" if example else _escaped(" ".join(paragraph.split())))
    command = app
    for word in name.split():
        command = command[word]
    return "\n\n".join([*parts, "\n".join(["| what to give | |", "|---|---|", *_rows(command)])])


def _rows(command: App) -> Iterator[str]:
    """Return a line for every option but `--json`, which the page names once."""
    groups: dict[str, list[Argument]] = {name: [] for name in _FIRST}
    order = {}
    for argument in command.assemble_argument_collection():
        if "--json" not in argument.names:
            (group,) = argument.parameter.group
            groups.setdefault(group.name, []).append(argument)
            order[group.name] = -1 if group.name in _FIRST else group.sort_key
    for title in sorted(order, key=lambda title: order[title]):
        if title not in _FIRST:
            yield f"| **{title}** | |"
        yield from map(_row, groups[title])


def _row(argument: Argument) -> str:
    names = [name for name in argument.names if name not in argument.negatives]
    value = "" if argument.is_flag() else argument.parameter.metavar or _kind(argument)
    if names[0].startswith("-"):
        what = ", ".join(f"`{name} {value}`".replace(" `", "`") for name in names)
    else:
        what = f"`{'|'.join(argument.get_choices() or names)}`"
    required = " (required)" if argument.required and names[0].startswith("-") else ""
    return f"| {what.replace('|', chr(92) + '|')} | {_escaped(argument.parameter.help or '')}{required} |"


def _kind(argument: Argument) -> str:
    found = re.search(r"float|int|Path|str", str(argument.hint))
    return {"float": "NUMBER", "int": "N", "Path": "FILE"}.get(found[0] if found else "", "TEXT")


def _escaped(text: str) -> str:
    """Escape what Markdown would read as something else, and set a path or a flag as code."""
    text = text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
    return re.sub(r"(?<![\w`])(--[a-z][\w-]*|[\w./-]+\.(?:toml|html|csv|parquet|db))(?![\w`])", r"`\1`", text)

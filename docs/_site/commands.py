"""The command-line reference as Markdown, made from the parsers themselves."""

import argparse
import re
from collections.abc import Iterator

_EVERYWHERE = {"--help", "--json"}
"""Flags of every command, which the page names once."""


def reference(parser: argparse.ArgumentParser) -> str:
    """A section for every command, in the order of `--help`."""
    sections = [_section(command, summary) for command, summary in _commands(parser)]
    return "\n\n".join(sections)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Every command that can be run, commands of commands included, with its line in the list of commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                inner = list(_commands(command))
                yield from inner or [(command, summaries[name])]


def _section(command: argparse.ArgumentParser, summary: str) -> str:
    words, examples = _description(command.description or "")
    parts = [f"## {command.prog}", words or summary]
    if examples:
        parts.append(_fence("console", "\n".join(f"$ {line}" for line in examples)))
    rows = [row for group in command._action_groups for row in _group(group)]
    parts.append("\n".join(["| what to give | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _description(text: str) -> tuple[str, list[str]]:
    """What a description says in words, and the commands that it shows."""
    lines = text.strip().splitlines()
    examples = [line.strip() for line in lines if line.startswith("  ")]
    words = " ".join(line.strip() for line in lines if line.strip() and not line.startswith("  "))
    return _escaped(words), examples


def _group(group: argparse._ArgumentGroup) -> list[str]:
    shown = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
    rows = [_row(action) for action in shown if not _EVERYWHERE & set(action.option_strings)]
    plain = group.title in ("positional arguments", "options")
    return rows if plain or not rows else [f"| **{group.title}** | |", *rows]


def _row(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else (action.dest or "").upper())
    if action.choices:
        value = "|".join(str(choice) for choice in action.choices)
    if not action.option_strings:
        names = f"`{value}`"
    elif action.nargs == 0:
        names = ", ".join(f"`{name}`" for name in action.option_strings)
    else:
        names = ", ".join(f"`{name} {value}`" for name in action.option_strings)
    told = (action.help or "") % {"default": action.default, "prog": ""} if action.help else ""
    told = re.sub(r"\(\d+ here\)", "(as many as the machine has)", told)
    if action.required and action.option_strings:
        told += " (required)"
    return f"| {names.replace('|', chr(92) + '|')} | {_escaped(told)} |"


def _escaped(text: str) -> str:
    """Text that Markdown would read as something else, a path or a flag set as code."""
    text = text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
    return re.sub(r"(?<![\w`])(--[a-z][\w-]*|[\w./-]+\.(?:toml|html|csv|parquet|db))(?![\w`])", r"`\1`", text)


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"

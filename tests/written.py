"""What the docs show a reader, run as a reader would run it."""

import os
import re
import shlex
from pathlib import Path

import pytest
from checks import repeatable

from repsynth.cli import main

CHECKOUT = Path(__file__).resolve().parents[1]
DOCS = CHECKOUT / "docs"
README = CHECKOUT / "README.md"


def blocks(path: Path, language: str) -> list[str]:
    """The pieces of code of one kind in a text."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_all(path: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Run every command in a text, each where the ones before have left it, and see that it prints what the text
    says it prints; how many there are."""
    text = path.read_text(encoding="utf-8")
    pieces = re.findall(r"```(console|text)\n(.*?)```", text, flags=re.DOTALL)
    commands = 0
    printed: set[str] = set()
    with repeatable(1):  # an audit of fresh noise may, by a rare chance, find more than there is
        for kind, piece in pieces:
            if kind == "text":
                missing = [line for line in piece.splitlines() if _without_numbers(line) not in printed]
                assert not missing, (path.name, missing)
                continue
            capsys.readouterr()
            for line in piece.splitlines():
                commands += _run(line)
            printed = {_without_numbers(line) for line in capsys.readouterr().out.splitlines()}
    return commands


def _run(line: str) -> bool:
    """Run a line of a console; whether it is a command of ours. `make` and the like stand in the README only."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    if words[0] == "cd":
        os.chdir(words[1])
    if words[0] == "repsynth":
        assert main(words[1:]) == 0, line
    return words[0] == "repsynth"


def _without_numbers(line: str) -> str:
    """A line but for its numbers, its bars and how it is spaced, which noise may change."""
    return re.sub(r"[\d.,]+", "#", " ".join(line.replace("█", "").split())).rstrip()

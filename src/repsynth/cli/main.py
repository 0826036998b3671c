"""Parse the command line, run one command, turn errors into one line and an exit code."""

import inspect
import json
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from repsynth import __version__
from repsynth.errors import RepsynthError, RepsynthWarning, SchemaError, printable, shown

if TYPE_CHECKING:  # `repsynth --version` starts without it
    from cyclopts import App

INTRO = """\
Turn a private table into a differentially private synthetic one. Outliers, the people who are easiest to single
out, get a smaller bound on their privacy loss than everybody else.

$ repsynth schema people.csv -o schema.toml         # draft what is public, then complete it by hand
$ repsynth check people.csv --schema schema.toml    # see which cells would be lost; PRIVATE, costs nothing
$ repsynth plan --schema schema.toml --epsilon 1    # see what a run will cost; touches no data
$ repsynth synthesize people.csv --schema schema.toml --epsilon 1
$ repsynth inspect release                          # see what was spent, and who lost how much

A table has one person per row, or several rows per person if the schema has [person]. It is a CSV file with a
header line (also .gz, .bz2, .zst), a Parquet, Arrow, Excel, SPSS, Stata or SAS file, several files, a folder, a
'pattern*', an SQLite or DuckDB file, or postgresql://host/database?table=NAME.

A schema is a TOML file with a table [columns.NAME] for each column: type = "integer", "number" or "datetime" with
min and max; "category" with values; "boolean"; or "id". Ids are not learned: the synthetic table has new numbers,
or new ids in a format such as "###-##-####". missing = true allows empty cells.
"""
LEDGER = "Keep count of a dataset's total budget over many runs."

_INTERRUPTED = "interrupted; a cost that a ledger had reserved counts as spent"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
    if words == ["--version"]:
        print(f"repsynth {__version__}")
        return 0
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            # A command prints the warnings of its run itself.
            warnings.filterwarnings("ignore", category=RepsynthWarning, module=r"repsynth\.cli\.")
            return _run(words)
    except RepsynthError as error:
        problems = error.problems if isinstance(error, SchemaError) else [str(error)]
        _print_error(type(error).__name__, problems, as_json="--json" in words)
        return 2
    except KeyboardInterrupt as interrupt:
        sys.stderr.write((str(interrupt) or _INTERRUPTED) + "\n")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _run(words: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from repsynth.cli.options import Options

    app = make_app(words)
    try:
        options = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        message = re.sub(r"(?<!\.)\.$", "", _without_addresses(str(error), words))
        help = " ".join(["repsynth", *(app.parse_commands(words)[0]), "--help"])
        _print_error("UsageError", [f"{message}; see {help}"], as_json="--json" in words)
        return 2
    if not isinstance(options, Options):  # help was printed
        return 0
    command = " ".join(app.parse_commands(words)[0])
    commands = import_module("repsynth.cli.commands")
    answer = getattr(commands, command.replace(" ", "_"))(options)
    answer.print(as_json=options.json, full=getattr(options, "full", False))
    return int(answer.code)


def make_app(words: Sequence[str] | None = None) -> "App":
    """Build the parser of the command that the words name, or of all commands."""
    import cyclopts

    from repsynth.cli.options import COMMANDS, parser_of

    app = cyclopts.App(
        name="repsynth",
        help=_wrapped(INTRO),
        version=f"repsynth {__version__}",
        help_format="plaintext",
        default_parameter=cyclopts.Parameter(negative=(), show_default=False, allow_repeating=True),
        result_action="return_value",
    )
    app.command(cyclopts.App(name="ledger", help=LEDGER, sort_key=9))
    for place, (name, kind) in enumerate(COMMANDS.items()):
        *group, verb = name.split()
        runs = words is None or list(words[: 1 + len(group)]) == name.split()
        text = inspect.getdoc(kind) or ""
        parser = parser_of(kind) if runs else _other
        (app[group[0]] if group else app).command(parser, name=verb, help=_wrapped(text), sort_key=place)
    return app


def _other() -> None:
    """Stand in for a command that does not run."""


def _wrapped(text: str) -> str:
    """Put each paragraph on one line, so that it wraps at the terminal's width; examples stay as they are."""
    paragraphs = re.split(r"\n\n+", text.strip())
    return "\n\n".join(p if p.startswith("$ ") else " ".join(p.split()) for p in paragraphs)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {printable(str(message))}\n")


def _without_addresses(message: str, words: Sequence[str]) -> str:
    """Hide what may be the address of a database: it may hold a password."""
    for word in (*words, *(word.partition("=")[2] for word in words)):
        if (place := shown(word)) != word:
            message = message.replace(repr(word), place).replace(word, place)
    return message


def _print_error(kind: str, problems: list[str], *, as_json: bool) -> None:
    if as_json:
        report = {"error": {"kind": kind, "message": "\n".join(problems), "problems": problems}}
        sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        return
    for problem in problems:
        sys.stderr.write(f"error: {printable(problem)}\n")

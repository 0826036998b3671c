# PYTHON_ARGCOMPLETE_OK
"""Parse the command line, run one command, turn errors into one line and an exit code."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from repsynth import __version__
from repsynth.cli.flags import add_budget, add_place, add_reading, add_settings, add_table
from repsynth.errors import RepsynthError, SchemaError, printable, shown
from repsynth.threads import processors

_INTRO = """\
Turn a private table into a differentially private synthetic one, in which outliers,
the people who are easiest to single out, have a smaller bound on what they lose than everybody else.

  1. repsynth schema people.csv -o schema.toml      draft what is public, then complete it by hand
  2. repsynth check people.csv --schema schema.toml see which cells it would lose; PRIVATE, costs nothing
  3. repsynth plan --schema schema.toml --epsilon 1 see what it will cost; touches no data
  4. repsynth synthesize people.csv --schema schema.toml --epsilon 1
  5. repsynth inspect release                       what was spent, and who lost how much

A table has one person per row, or several where the schema has [person]: a CSV file with a header line (also
.gz, .bz2, .zst), a Parquet, Arrow, Excel, SPSS, Stata or SAS file, several files, a folder or a 'pattern*', an
SQLite or DuckDB file, or postgresql://host/database?table=NAME. A schema is a TOML file with a table
[columns.NAME] for each column: type = "integer", "number" or "datetime" with min and max; "category" with
values; "boolean"; or "id", which is numbered anew, or made anew with format = "###-##-####". missing = true
allows empty cells.
"""

_SYNTHESIZE = """\
Read the data once, spend the budget, write a release folder and a synthetic table. Whether the schema fits the
data shows before anything is spent: see repsynth check.

  repsynth synthesize people.csv --schema schema.toml --epsilon 1
  repsynth synthesize people.csv --schema schema.toml --epsilon 1 --outlier-epsilon 0.3
  repsynth synthesize people.parquet --schema schema.toml --rho 0.02 -o synthetic.parquet
  repsynth synthesize people.csv --schema schema.toml --plan plan.toml
"""

_SCHEMA = """\
Decide for each column what it is, say why, and write a draft to be confirmed by hand. What it shows and writes was
read from the data: it is not private.

  repsynth schema people.csv --label smoker -o schema.toml

With --private nothing is looked at for free: types, bounds and values are found by noisy measurements that cost ε.
Only the names of the columns are taken as public. The schema may be published and needs no confirmation; it is
coarser, and rare values are not in it. Its cost goes on into the account of every release that is made with it.

  repsynth schema people.csv --label smoker --private --one-row-per-person --epsilon 0.2 --ledger ledger.db

Metadata of SDV (one table, JSON) says what columns are; bounds and categories, which it lacks, are looked up or
measured. Measured, the metadata's ids are not, and types are.

  repsynth schema people.csv --metadata metadata.json -o schema.toml
  repsynth schema schema.toml --to-sdv metadata.json
"""

_CHECK = """\
Look at a table through its schema before anything is paid: which cells cannot be read, are clipped or count as
missing, which rows are no rows, which ids repeat, and what to declare. One pass; nothing is written or spent. What
it prints is PRIVATE.

  repsynth check people.csv --schema schema.toml
"""

_AUDIT = """\
Run the mechanism on a table and on its neighbour, many times, and report what an attacker can prove:
per measurement and in all, for the most and the least outlying record and for planted canaries. Ends with
exit code 1 if a claim is exceeded. With DATA, what it prints is PRIVATE.

  repsynth audit --schema schema.toml --epsilon 1
"""

_EVALUATE = """\
Measure what a synthetic table is good for, before it is handed out: how near its tables are, what can be learned
from it, whether it can be told from the real one, and who pays. Every measure stands beside its best value and
what two halves of the real table give. With tables, all of it is PRIVATE: it is computed from the training data.
With a release alone, it says which errors follow from the released noise, which may be published.

  repsynth evaluate --train people.csv --synthetic synthetic.csv --holdout others.csv --schema schema.toml
  repsynth evaluate --train people.csv --release release -o private
  repsynth evaluate --release release
"""

_ATTACK = """\
See who could still be found, before anything is handed out. Records of the table, from all deciles of
outlyingness, are in a run or not by a coin; attackers who see a synthetic table, know the method, can run it
themselves or see the released numbers guess which. The plan is compared with uniform weights at the same budget,
and every attack with the best that the account allows. Nothing is spent or released; what it prints and keeps is
PRIVATE. Each run is kept: started again, it goes on. Ends with exit code 1 if an attack proves more than is
claimed.

  repsynth attack --train people.csv --holdout others.csv --schema schema.toml --epsilon 1 -o attack
  repsynth attack --train people.csv --schema schema.toml --plan plan.toml --targets 200 --runs 256 -o attack
"""

_REPORT = """\
Write a release as one page that opens in any browser: what it promises, in plain words and in numbers, how the
loss is spread, how exact it is, and a calculator for anybody's own bound. It is public, as the release is. With
--curator it is another page, for the curator alone: real against synthetic, who weighs less, what the records
lose, who could be found. That one is PRIVATE, must be called so, and is never written into a release.

  repsynth report release -o report.html
  repsynth report release --curator --train people.csv --holdout others.csv -o private-report.html
"""

_EXPLORE = """\
Write one page with sliders for the budget, for those who stand out and for the expected number of records: what a
run would promise, what it would spend on which measurement and how much noise it would leave, before anything is
spent. It saves a plan.toml for `repsynth synthesize --plan`. It knows the public schema and, if given, a release.

  repsynth explore --schema schema.toml -o explore.html
  repsynth explore --release release -o explore.html
"""

_LEDGER = """\
A dataset gets a total budget once; each run reserves its whole cost before it opens the data.

  repsynth ledger init ledger.db --epsilon 2 --delta 1e-9
  repsynth synthesize people.csv --schema schema.toml --epsilon 1 --ledger ledger.db
  repsynth ledger show ledger.db
"""

_CURATOR = {"schema", "check", "risk", "audit", "evaluate", "attack", "report", "explore"}
_INTERRUPTED = "interrupted; a cost that a ledger had reserved counts as spent"

_COMPLETION = """\
Print what makes a shell complete commands and flags.

  eval "$(repsynth completion bash)"
  repsynth completion fish > ~/.config/fish/completions/repsynth.fish
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            return _command(options.command)(options) or 0
    except RepsynthError as error:
        _tell(error, as_json=options.json)
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(getattr(options, "interrupted", _INTERRUPTED) + "\n")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _command(name: str) -> Callable[[argparse.Namespace], int | None]:
    """The function of a command; imported only now, so that help comes at once."""
    module = "curator_commands" if name in _CURATOR else "commands"
    command: Callable[[argparse.Namespace], int | None] = getattr(import_module(f"repsynth.cli.{module}"), name)
    return command


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, as an error is."""
    sys.stderr.write(f"warning: {printable(str(message))}\n")


def _tell(error: RepsynthError, *, as_json: bool) -> None:
    problems = error.problems if isinstance(error, SchemaError) else [str(error)]
    if as_json:
        _print_error(type(error).__name__, problems)
        return
    for problem in problems:
        sys.stderr.write(f"error: {printable(problem)}\n")


def _print_error(kind: str, problems: list[str]) -> None:
    report = {"error": {"kind": kind, "message": "\n".join(problems), "problems": problems}}
    sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


class _Parser(argparse.ArgumentParser):
    """Usage errors without addresses, which may hold passwords; as JSON, too, where that is asked for."""

    _args: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._args = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        values = (given.partition("=")[2] for given in self._args)
        for given in (*self._args, *values):
            if (place := shown(given)) != given:
                message = message.replace(repr(given), place).replace(given, place)
        if "--json" in self._args:
            _print_error("UsageError", [message])
            self.exit(2)
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="repsynth", description=_INTRO, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"repsynth {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)

    schema = _verb(verbs, "schema", "draft a schema from the data, to be confirmed by hand", _SCHEMA)
    add_table(schema, "data", help="the table: files, a folder, a 'pattern*' or the address of a database")
    schema.add_argument("--label", help="the column that analysts will predict")
    schema.add_argument("-o", "--output", type=Path, default=Path("schema.toml"), help="(default: schema.toml)")
    schema.add_argument(
        "--metadata",
        type=Path,
        metavar="JSON",
        help="SDV's metadata of the table: says types, ids and their forms",
    )
    schema.add_argument(
        "--to-sdv",
        type=Path,
        metavar="JSON",
        help="write SDV's metadata of a schema.toml, named as DATA; reads no table",
    )
    private = schema.add_argument_group("measured instead of looked up")
    private.add_argument("--private", action="store_true", help="find everything by charged measurements")
    private.add_argument("--epsilon", type=float, help="what they may cost in all")
    private.add_argument("--delta", type=float, help="the δ that goes with it (default: 1e-10)")
    private.add_argument(
        "--one-row-per-person",
        action="store_true",
        default=None,
        help="declare that no person has more than one row; measuring a schema requires it",
    )
    private.add_argument(
        "--id", action="append", metavar="COLUMN", help="a column that identifies people: not measured; repeatable"
    )
    private.add_argument(
        "--public-rows",
        type=int,
        metavar="N",
        help="how many rows there are, if public: refuses a hopeless budget",
    )
    _add_payment(private)
    add_reading(schema)

    check = _verb(verbs, "check", "see what a schema makes of a table: a PRIVATE look", _CHECK)
    add_table(check, "data", help="the table: files, a folder, a 'pattern*' or the address of a database")
    check.add_argument("--schema", type=Path, required=True, help="schema.toml, confirmed or not")
    add_reading(check)

    plan = _verb(verbs, "plan", "show what a run would measure and cost; touches no data")
    add_settings(plan)
    plan.add_argument(
        "--rows", type=int, default=10_000, help="expected number of records, for display only (default: 10,000)"
    )
    plan.add_argument("--save", type=Path, metavar="TOML", help="write the settings to a file, for --plan")

    synthesize = _verb(verbs, "synthesize", "make a release and a synthetic table", _SYNTHESIZE)
    add_table(synthesize, "data", help="the table: one person per row, or several with [person] in the schema")
    add_settings(synthesize)
    add_reading(synthesize)
    synthesize.add_argument("--rows", type=int, help="rows of the synthetic table (default: the released count)")
    synthesize.add_argument("-o", "--output", type=Path, help="synthetic table (default: synthetic.csv)")
    synthesize.add_argument(
        "--release", type=Path, default=Path("release"), metavar="DIR", help="release folder (default: release)"
    )
    _add_payment(synthesize)
    add_place(synthesize)

    sample = _verb(verbs, "sample", "draw more synthetic rows from a release; costs nothing")
    sample.add_argument("release", metavar="RELEASE", type=Path, help="release folder")
    sample.add_argument("-n", "--rows", type=int, help="number of rows (default: the released count)")
    sample.add_argument("-o", "--output", type=Path, required=True, help="a .csv or .parquet file")
    sample.add_argument("--label", metavar="VALUE", help="only rows with this value of the label")
    sample.add_argument(
        "--where", metavar="CONDITION", help="only rows for which this holds, such as 'sex = \"F\" and age < 40'"
    )
    sample.add_argument(
        "--given", type=Path, metavar="TABLE", help="complete these rows: a file with some of the columns"
    )
    sample.add_argument(
        "--ignore-rule",
        type=int,
        action="append",
        default=[],
        metavar="NUMBER",
        help="do not enforce this rule of the schema, counted from 1; may be repeated",
    )
    sample.add_argument("--seed", type=int, help="draw the same rows again; sampling is free, so this is safe")

    inspect = _verb(verbs, "inspect", "what a release cost, and how the loss is spread")
    inspect.add_argument("release", metavar="RELEASE", type=Path, help="release folder")

    report = _verb(verbs, "report", "a release as one page that everybody can read", _REPORT)
    report.add_argument("release", metavar="RELEASE", type=Path, help="release folder")
    report.add_argument("-o", "--output", type=Path, required=True, help="the page, an .html file")
    report.add_argument("--curator", action="store_true", help="the PRIVATE page: what was lost, and who by")
    add_table(report, "--train", help="the table the release was made from")
    add_table(report, "--holdout", help="real rows that the release was not made from, to predict")
    report.add_argument("--attack", type=Path, metavar="DIR", help="what repsynth attack left, to be shown, too")
    report.add_argument("--evaluation", type=Path, metavar="DIR", help="the folder that repsynth evaluate wrote")
    add_reading(report)

    explore = _verb(verbs, "explore", "a page to choose a plan with; touches no data", _EXPLORE)
    explore.add_argument("--schema", type=Path, help="schema.toml, confirmed (default: the release's)")
    explore.add_argument("--release", type=Path, metavar="DIR", help="release folder to start from")
    explore.add_argument("-o", "--output", type=Path, required=True, help="the page, an .html file")

    risk = _verb(verbs, "risk", "each record's own loss: a PRIVATE file for the curator")
    add_table(risk, "data", help="the table the release was made from")
    risk.add_argument("--release", type=Path, required=True, metavar="DIR", help="release folder")
    risk.add_argument("-o", "--output", type=Path, required=True, help="dossier, a .parquet file; PRIVATE")
    risk.add_argument("--show", action="store_true", help="also print its PRIVATE summary")
    add_reading(risk)

    _add_ledger(verbs)

    audit = _verb(verbs, "audit", "attack the mechanism and compare with its claims", _AUDIT)
    add_table(audit, "data", nargs="*", help="a table; made up from the schema if left out")
    add_settings(audit)
    add_reading(audit)
    audit.add_argument("--runs", type=int, default=100_000, help="runs per record (default: 100,000)")

    _add_evaluate(verbs)
    _add_attack(verbs)

    demo = _verb(verbs, "demo", "the whole way on simulated data")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("demo"), help="folder for all files (default: demo)"
    )
    completion = _verb(verbs, "completion", "make a shell complete commands", _COMPLETION)
    completion.add_argument("shell", choices=["bash", "zsh", "fish", "powershell", "tcsh"])
    return parser


def _add_payment(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--ledger", type=Path, metavar="DB", help="budget ledger to spend from (ledger init)")
    parser.add_argument("--dataset", help="whose budget, where the ledger holds several")


def _add_ledger(verbs: Any) -> None:
    ledger = verbs.add_parser(
        "ledger",
        help="keep count of a dataset's total budget over many runs",
        description=_LEDGER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = ledger.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    init = _verb(parts, "init", "give a dataset its total budget, once")
    init.add_argument("ledger", metavar="DB", type=Path, help="ledger file, made where there is none")
    add_budget(init)
    init.add_argument("--dataset", default="data", help="its name in the ledger (%(default)s)")
    show = _verb(parts, "show", "what was spent, by whom and when, and what remains")
    show.add_argument("ledger", metavar="DB", type=Path, help="ledger file")
    show.add_argument("--dataset", help="only this one")


def _add_evaluate(verbs: Any) -> None:
    evaluate = _verb(
        verbs,
        "evaluate",
        "what a synthetic table is good for: a PRIVATE look; or what a release promises",
        _EVALUATE,
    )
    evaluate.set_defaults(interrupted="interrupted; nothing was written")
    add_table(evaluate, "--train", help="the table the release was made from")
    add_table(evaluate, "--synthetic", help="the synthetic table, as repsynth writes it (drawn from the release)")
    add_table(evaluate, "--holdout", help="real rows that the release was not made from, to predict")
    evaluate.add_argument("--schema", type=Path, help="schema.toml (default: the release's)")
    evaluate.add_argument("--release", type=Path, metavar="DIR", help="release folder; alone, it needs no table")
    evaluate.add_argument("--label", help="the column to predict (default: the schema's label)")
    evaluate.add_argument(
        "--skip", action="append", default=[], metavar="STEP", help="leave out a step (repeatable)"
    )
    evaluate.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for all numbers; PRIVATE")
    add_reading(evaluate)


def _add_attack(verbs: Any) -> None:
    attack = _verb(verbs, "attack", "see who could still be found: a PRIVATE look", _ATTACK)
    attack.set_defaults(interrupted="interrupted; run the same command again to go on where it stopped")
    add_table(attack, "--train", required=True, help="the table")
    add_table(attack, "--holdout", help="people like those, who are not in the table")
    add_settings(attack)
    add_reading(attack)
    attack.add_argument("--targets", type=int, default=100, metavar="N", help="records under attack (%(default)s)")
    attack.add_argument("--runs", type=int, default=64, metavar="K", help="runs of each method (%(default)s)")
    attack.add_argument("--jobs", type=int, default=processors(), metavar="J", help="processes (%(default)s here)")
    attack.add_argument(
        "--power", action="store_true", help="attack without noise, too: what finds nobody there proves nothing"
    )
    attack.add_argument("--seed", type=int, default=0, help="choice of the targets, and coins (%(default)s)")
    attack.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="folder for all runs; PRIVATE"
    )


def _verb(verbs: Any, name: str, summary: str, description: str | None = None) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(command="_".join(parser.prog.split()[1:]))
    return parser

"""Parse the command line, run one command, turn errors into one line and an exit code."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from repsynth import __version__
from repsynth.cli import commands, paper
from repsynth.errors import RepsynthError, SchemaError
from repsynth.weigh import RULES

_INTRO = """\
Turn a private table into a differentially private synthetic one, in which outliers,
the people who are easiest to single out, lose provably less privacy than everybody else.

  1. repsynth schema people.csv -o schema.toml      draft what is public, then complete it by hand
  2. repsynth plan --schema schema.toml --epsilon 1 see what it will cost; touches no data
  3. repsynth synthesize people.csv --schema schema.toml --epsilon 1
  4. repsynth inspect release                       what was spent, and who lost how much

A table is a comma-separated UTF-8 file with a header line, or a Parquet file: one person per row. A schema
is a TOML file with a table [columns.NAME] for each column: type = "integer", "number" or "datetime" with
min and max; "category" with values; "boolean"; or "id", which is numbered anew. missing = true allows gaps.
"""

_SYNTHESIZE = """\
Read the data once, spend the budget, write a release folder and a synthetic table.

  repsynth synthesize people.csv --schema schema.toml --epsilon 1
  repsynth synthesize people.csv --schema schema.toml --epsilon 1 --outlier-epsilon 0.3
  repsynth synthesize people.parquet --schema schema.toml --rho 0.02 -o synthetic.parquet
"""


_AUDIT = """\
Run the mechanism on a table and on its neighbour, many times, and report what an attacker can prove:
per measurement and in all, for the most and the least outlying record and for planted canaries. Ends with
exit code 1 if a claim is exceeded. With DATA, what it prints is PRIVATE.

  repsynth audit --schema schema.toml --epsilon 1
"""

_LEDGER = """\
A dataset gets a total budget once; each run reserves its whole cost before it opens the data.

  repsynth ledger init ledger.db --epsilon 2 --delta 1e-9
  repsynth synthesize people.csv --schema schema.toml --epsilon 1 --ledger ledger.db
  repsynth ledger show ledger.db
"""


_INTERRUPTED = "interrupted; a cost that a ledger had reserved counts as spent"

_PAPER = """\
Run the evaluation of the method's paper: six methods, four public datasets, four budgets, five seeds. Writes
tables (Markdown, LaTeX, JSON) with the published values beside, and figures (PNG, SVG). Each run is kept in a
file of its own: started again, the study goes on where it stopped. What it writes is not a private release.

  repsynth paper --quick
  repsynth paper --data-dir FOLDER --jobs 2 -o results
  repsynth paper --protocol paper --data-dir FOLDER -o results
  repsynth paper --nulls --data-dir FOLDER -o results
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    options = _parser().parse_args(arguments)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        return options.command(options) or 0
    except SchemaError as error:
        for problem in error.problems:
            errors.print(f"error: {problem}", markup=False)
        return 2
    except RepsynthError as error:
        errors.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print(getattr(options, "interrupted", _INTERRUPTED), markup=False)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="repsynth", description=_INTRO, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"repsynth {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    schema = _verb(verbs, "schema", commands.schema, "draft a schema from the data, to be confirmed by hand")
    schema.add_argument("data", metavar="DATA", type=Path, help="CSV or Parquet file")
    schema.add_argument("--label", help="the column that analysts will predict")
    schema.add_argument("-o", "--output", type=Path, default=Path("schema.toml"), help="(default: schema.toml)")

    plan = _verb(verbs, "plan", commands.plan, "show what a run would measure and cost; touches no data")
    _add_settings(plan)
    plan.add_argument(
        "--rows",
        type=int,
        default=10_000,
        help="expected number of records, for display only (default: 10,000)",
    )

    synthesize = _verb(
        verbs, "synthesize", commands.synthesize, "make a release and a synthetic table", _SYNTHESIZE
    )
    synthesize.add_argument("data", metavar="DATA", type=Path, help="CSV or Parquet file, one person per row")
    _add_settings(synthesize)
    synthesize.add_argument("--rows", type=int, help="rows of the synthetic table (default: the released count)")
    synthesize.add_argument("-o", "--output", type=Path, help="synthetic table (default: synthetic.csv)")
    synthesize.add_argument(
        "--release",
        type=Path,
        default=Path("release"),
        metavar="DIR",
        help="release folder (default: release)",
    )

    synthesize.add_argument("--ledger", type=Path, metavar="DB", help="budget ledger to spend from (ledger init)")
    synthesize.add_argument("--dataset", help="whose budget, where the ledger holds several")

    sample = _verb(verbs, "sample", commands.sample, "draw more synthetic rows from a release; costs nothing")
    sample.add_argument("release", metavar="RELEASE", type=Path, help="release folder")
    sample.add_argument("-n", "--rows", type=int, help="number of rows (default: the released count)")
    sample.add_argument("-o", "--output", type=Path, required=True, help="a .csv or .parquet file")
    sample.add_argument("--label", metavar="VALUE", help="only rows with this value of the label")
    sample.add_argument("--seed", type=int, help="draw the same rows again; sampling is free, so this is safe")

    inspect = _verb(verbs, "inspect", commands.inspect, "what a release cost, and how the loss is spread")
    inspect.add_argument("release", metavar="RELEASE", type=Path, help="release folder")

    risk = _verb(verbs, "risk", commands.risk, "each record's own loss: a PRIVATE file for the curator")
    risk.add_argument("data", metavar="DATA", type=Path, help="the table the release was made from")
    risk.add_argument("--release", type=Path, required=True, metavar="DIR", help="release folder")
    risk.add_argument("-o", "--output", type=Path, required=True, help="dossier, a .parquet file; PRIVATE")
    risk.add_argument("--show", action="store_true", help="also print its PRIVATE summary")

    _add_ledger(verbs)

    audit = _verb(verbs, "audit", commands.audit, "attack the mechanism and compare with its claims", _AUDIT)
    audit.add_argument(
        "data", metavar="DATA", type=Path, nargs="?", help="a table; made up from the schema if left out"
    )
    _add_settings(audit)
    audit.add_argument("--runs", type=int, default=100_000, help="white-box runs per record (default: 100,000)")
    audit.add_argument("--black-box-runs", type=int, default=0, help="black-box runs per record (default: none)")

    _add_paper(verbs)

    demo = _verb(verbs, "demo", commands.demo, "the whole way on simulated data")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("demo"), help="folder for all files (default: demo)"
    )
    return parser


def _add_ledger(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    ledger = verbs.add_parser(
        "ledger",
        help="keep count of a dataset's total budget over many runs",
        description=_LEDGER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = ledger.add_subparsers(title="commands", required=True, metavar="COMMAND")
    init = _verb(parts, "init", commands.ledger_init, "give a dataset its total budget, once")
    init.add_argument("ledger", metavar="DB", type=Path, help="ledger file, made where there is none")
    _add_budget(init)
    init.add_argument("--dataset", default="data", help="its name in the ledger (%(default)s)")
    show = _verb(parts, "show", commands.ledger_show, "what was spent, by whom and when, and what remains")
    show.add_argument("ledger", metavar="DB", type=Path, help="ledger file")
    show.add_argument("--dataset", help="only this one")


def _add_paper(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    study = _verb(verbs, "paper", paper.paper, "run the paper's experiments on public data", _PAPER)
    study.set_defaults(interrupted="interrupted; run the same command again to go on where it stopped")
    study.add_argument(
        "--protocol",
        choices=["sound", "paper"],
        default="sound",
        help="sound: the product's path and attacks without a leak; paper: as published (%(default)s)",
    )
    study.add_argument("--quick", action="store_true", help="two datasets, two budgets, two seeds: under a minute")
    study.add_argument("--nulls", action="store_true", help="the published attack where there is nothing to find")
    study.add_argument("--datasets", nargs="+", metavar="NAME", help="sim, breast_cancer, adult, german_credit")
    study.add_argument("--epsilons", nargs="+", type=float, metavar="E", help="(0.5 1 2 4)")
    study.add_argument(
        "--seeds", type=int, metavar="N", help="how many splits of each dataset (5; more for --nulls)"
    )
    study.add_argument("--jobs", type=int, default=paper.jobs(), metavar="N", help="processes (%(default)s here)")
    study.add_argument("--data-dir", metavar="DIR", help="folder with adult.csv and german_credit.csv, if at hand")
    study.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("paper-results"),
        metavar="DIR",
        help="folder for results, tables and figures; a study that was stopped goes on there (%(default)s)",
    )


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    command: commands.Command,
    summary: str,
    description: str | None = None,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(command=command)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", type=Path, required=True, help="schema.toml: what is publicly known")
    budget = _add_budget(parser)
    budget.add_argument(
        "--public-rows",
        type=int,
        metavar="N",
        help="the number of records, if it is public; else it is measured",
    )
    outliers = parser.add_argument_group("outliers")
    outliers.add_argument(
        "--weights",
        choices=list(RULES),
        default="targeted",
        help="how weights fall with the score (%(default)s); random and removal are ablations",
    )
    outliers.add_argument("--gamma", type=float, help="how sharply hinge-exp falls (default: 1)")
    outliers.add_argument(
        "--outlier-epsilon",
        type=float,
        metavar="E",
        help="bring every record above the threshold to at most this",
    )
    outliers.add_argument("--outlier-share", type=float, metavar="F", help="share of records to protect (0.3)")
    split = parser.add_argument_group("split of the budget (shares of mu²)")
    split.add_argument(
        "--score-share",
        type=_share,
        metavar="S",
        help="(0.05; mst, aim and neural: 0.1), or tenth-of-epsilon as in the paper",
    )
    split.add_argument("--threshold-share", type=float, metavar="S", help="(0.01)")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        default="naive-bayes",
        metavar="NAME",
        help="naive-bayes: few records; mst: a tree of two-way tables; aim: more tables, slower; neural: a "
        "network trained by DP-SGD, needs repsynth[neural] (%(default)s)",
    )
    model.add_argument(
        "--max-model-mb", type=int, metavar="MB", help="memory for the tables of mst and aim, or a network (1000)"
    )
    model.add_argument(
        "--epochs", type=float, metavar="N", help="neural: how often a record takes part on average (15)"
    )
    model.add_argument(
        "--sampling-rate", type=float, metavar="Q", help="neural: chance that it takes part in a round (0.05)"
    )


def _add_budget(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    budget = parser.add_argument_group("budget (exactly one of epsilon, mu, rho)")
    budget.add_argument("--epsilon", type=float, help="total privacy loss; 1 is strong, 10 is weak")
    budget.add_argument("--mu", type=float, help="the same in Gaussian DP")
    budget.add_argument("--rho", type=float, help="the same in zero-concentrated DP")
    budget.add_argument(
        "--delta", type=float, help="(default: 1/N², at most 1e-5, where N rows are public; else 1e-9)"
    )
    return budget


def _share(text: str) -> float | str:
    return text if text == "tenth-of-epsilon" else float(text)

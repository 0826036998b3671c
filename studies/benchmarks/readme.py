"""Write README.md from the docstrings of the benchmarks and from results/*.json.

To publish a new result, change its JSON file and run `python -m studies.benchmarks.readme`.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
_NO_BENCHMARK = {"__init__", "judge", "readme"}
RESULTS = ("protection", "frontier", "synthesizers", "values", "growth", "scale", "persons")

_HEAD = """\
# Benchmarks

Run them from the root of the repository with `python -m studies.benchmarks.NAME`; `--help` lists the options. They
need `pip install '.[studies]'` and `adult.csv` and `german_credit.csv` in a folder (`--data-dir`, REPSYNTH_DATA),
which `make data DATA=folder` downloads. Some also read NIST's `nist_national2019.csv` there. None is a test.

`python -m studies.benchmarks.readme` writes this page from `results/*.json`.
"""


def text() -> str:
    """Return the text of README.md."""
    return "\n".join([_HEAD, *_table(("name", "what it does"), _commands()), "", *_results()]).rstrip("\n") + "\n"


def _commands() -> Iterator[Sequence[str]]:
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in _NO_BENCHMARK:
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            assert doc is not None
            yield f"`{path.stem}`", re.split(r"(?<=[.:?])\s", doc)[0].rstrip(".:")


def _results() -> Iterator[str]:
    for name in RESULTS:
        found = json.loads((FOLDER / "results" / f"{name}.json").read_text(encoding="utf-8"))
        yield f"## {found['title']}\n\n`python -m studies.benchmarks.{found['command']}`. {found['note']}\n"
        for table in found["tables"]:
            yield from _table(table["columns"], table["rows"])
            yield ""


def _table(columns: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    README.write_text(text(), encoding="utf-8")

"""Write README.md from the docstrings of the benchmarks and from results/*.json.

To publish a new result, change its JSON file and run `python -m studies.benchmarks.readme`.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
_NO_BENCHMARK = {"__init__", "judge", "readme"}
RESULTS = (
    "protection",
    "frontier",
    "models",
    "columns",
    "codes",
    "synthesizers",
    "values",
    "growth",
    "scale",
    "persons",
    "ablation",
)
HEADINGS = {"cpu": "CPU s", "GB": "boosting"}
MEASURES = ("cpu", "LR", "GB", "1-way", "2-way", "k-marginal")
TITLES = {"adult": "Adult", "nist": "NIST national", "bikes": "bikes"}

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
        for table in found["tables"] if "tables" in found else _tables_of_runs(found["runs"]):
            yield from _table(table["columns"], table["rows"])
            yield ""


def _tables_of_runs(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Group runs by table, method and setting; an entry is the mean, ± the standard deviation of one run."""
    for title, same_table in groupby(runs, key=itemgetter("table")):
        rows: list[list[str]] = []
        measured = [key for key in MEASURES if key != "k-marginal" or title == "nist"]
        for method, same_method in groupby(same_table, key=itemgetter("method", "setting")):
            group = list(same_method)
            if "failed" in group[-1]:
                rows.append([*method, "0", group[-1]["failed"]])
                continue
            entries = [_entry(key, [run[key] for run in group if key in run]) for key in measured]
            rows.append([*method, str(len(group)), *entries])
        columns = [TITLES[title], "setting", "runs", *(HEADINGS.get(key, key) for key in measured)]
        yield {"columns": columns, "rows": [row + [""] * (len(columns) - len(row)) for row in rows]}


def _entry(key: str, values: list[float]) -> str:
    """Return the mean and, but for seconds, the standard deviation of one run.

    >>> _entry("LR", [0.851, 0.855]), _entry("cpu", [70.2, 80.2]), _entry("k-marginal", [847.2])
    ('.853 ± .003', '75', '847')
    """
    if not values:
        return ""
    if key == "cpu":
        return f"{fmean(values):.1f}" if max(values) < 10 else f"{fmean(values):,.0f}"
    digits = 0 if key == "k-marginal" else 3
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return re.sub(r"\b0\.", ".", f"{fmean(values):.{digits}f}{spread}")


def _table(columns: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    README.write_text(text(), encoding="utf-8")

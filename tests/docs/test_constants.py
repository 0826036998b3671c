"""Every numeric constant of scoring, columns, models and planning is on the page that says where it comes from."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("columns", "models", "planning", "scoring")


def listed() -> set[tuple[str, str, float]]:
    page = (ROOT / "docs/constants.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z_/]+) \| (`.+?) \| ([-\d., ]+) \|", page, re.M)
    return {
        (where, name.strip("` "), float(value))
        for where, names, values in rows
        for name, value in zip(names.split(","), values.split(","), strict=True)
    }


def numbers(node: ast.expr) -> list[float]:
    """The numbers of a literal or a tuple of literals; none of anything else."""
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return []
    values = found if isinstance(found, tuple) else (found,)
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return [float(value) for value in values] if plain else []


def in_code() -> set[tuple[str, str, float]]:
    package, found = ROOT / "src/repsynth", set()
    for path in (path for folder in FOLDERS for path in (package / folder).rglob("*.py")):
        where = path.relative_to(package).with_suffix("").as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and (values := numbers(node.value)):
                names = [name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)]
                found |= {(where, name, value) for name, value in zip(names, values, strict=True)}
    return found


def test_the_page_of_constants_has_all_and_no_others() -> None:
    assert in_code() == listed()

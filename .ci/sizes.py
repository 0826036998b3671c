"""Print how large the package is, and how long the path of a run, next to the figures stored in sizes.json.

    python .ci/sizes.py            compare
    python .ci/sizes.py --store    store today's figures

Statements do not count docstrings, and do not change with formatting.
"""

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORED = Path(__file__).with_name("sizes.json")
sys.path.insert(0, str(ROOT / "tests"))


def statements(tree: ast.AST) -> int:
    docstrings = (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in ast.walk(tree))
    return sum(isinstance(n, ast.stmt) for n in ast.walk(tree)) - sum(docstrings)


def measure() -> dict[str, list[int]]:
    """Lines, statements and modules by folder; modules and switches of two runs."""
    package = ROOT / "src" / "repsynth"
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for module in sorted(package.rglob("*.py")):
        text = module.read_text(encoding="utf-8")
        inside = module.relative_to(package).parts
        for name in (inside[0] if len(inside) > 1 else "(top)", "package"):
            for at, more in enumerate((text.count("\n"), statements(ast.parse(text)), 1)):
                found[name][at] += more
    found["tests"] = [sum(p.read_text(encoding="utf-8").count("\n") for p in (ROOT / "tests").rglob("*.py"))]
    from tracing import trace

    for model in ("naive-bayes", "aim"):
        run = trace(model)
        found[f"path of {model}"] = [len(run.modules), run.switches]
    return dict(found)


def main() -> None:
    now = measure()
    if "--store" in sys.argv:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in now.items())
        STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    print(f"{'':20}{'now':>24}{'stored':>24}")
    print(f"{'folder':20}{'lines  stmts  modules':>24}{'lines  stmts  modules':>24}")
    for name in sorted(now.keys() | stored.keys(), key=lambda name: (" " in name, name == "package", name)):
        columns = ("".join(f"{v:>8,}" for v in each.get(name, [])) for each in (now, stored))
        print(f"{name:20}" + "".join(f"{column:>24}" for column in columns))
    print("of a path: modules, switches between modules")


if __name__ == "__main__":
    main()

"""Changes modules at random places by a list of operators, and says which changes no test notices.

    python machine_mutants.py 300 --seed 1 --workers 2 [--only mechanism.noise] [--again NAME ...]

The places are drawn evenly from the modules, in proportion to the square root of how many places each has. The
tests of a change are the quick ones of its module, and the module's own examples.
"""

import argparse
import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from mutation import ROOT, Change, outcomes, outcomes_inside, path_of

QUICK = "not slow"
PRIVACY = ("tests/privacy/test_gaussian.py", "tests/privacy/test_loss.py")
GUARANTEE = (
    "tests/scoring/test_tails.py",
    "tests/curator/test_guarantee_exact.py",
    "tests/curator/test_guarantee.py",
)
CHOICES = tuple(
    f"tests/models/test_marginal.py::{name}"
    for name in (
        "test_choices_come_with_the_claimed_probabilities_and_no_others",
        "test_arbitrary_precision_chooses_as_floats_do",
        "test_utilities_that_are_far_apart_are_no_trouble",
        "test_a_choice_is_as_private_as_it_says",
        "test_the_charge_of_several_rounds_adds_up_in_squares",
        "test_choosing_is_charged_in_full_stops_by_itself_and_is_refused_beyond_the_budget",
    )
)
TRAINING = tuple(
    f"tests/privacy/test_training_loss.py::{name}"
    for name in (
        "test_what_cannot_be_accounted_for_is_no_training",
        "test_one_round_agrees_with_its_closed_form",
        "test_many_rounds_agree_with_another_accountant",
        "test_rounds_in_which_all_take_part_are_gaussian",
        "test_the_loss_rises_with_the_weight_from_the_floor_to_the_total",
        "test_the_noise_is_the_least_that_fits",
    )
)
REFUSED = "tests/models/test_network.py::test_the_account_refuses_a_training_that_does_not_fit"
PAIRS = tuple(
    f"tests/scoring/test_pairwise.py::{name}"
    for name in (
        "test_its_claims_hold",
        "test_the_pair_that_depends_most_on_each_other_is_chosen_first",
        "test_no_pair_is_chosen_twice_and_in_a_forest_none_closes_a_circle",
        "test_a_sharp_look_sees_the_rarity_of_a_value_and_a_blunt_one_its_distance",
        "test_no_number_of_rows_makes_a_utility_overflow",
        "test_a_rare_combination_of_ordinary_values_stands_out",
        "test_it_is_saved_loaded_and_has_no_bounds",
    )
)
TESTS: dict[str, tuple[str, ...]] = {
    "privacy.budget": ("tests/privacy/test_gaussian.py",),
    "privacy.events": (*PRIVACY, "tests/mechanism/test_meter.py", *CHOICES[3:]),
    "privacy.gaussian": PRIVACY,
    "privacy.loss": (*PRIVACY, *TRAINING, REFUSED),
    "privacy.pld": (*PRIVACY, *TRAINING, REFUSED),
    "mechanism.kernels": ("tests/mechanism", *CHOICES),
    "mechanism.meter": ("tests/mechanism", *CHOICES, REFUSED, "tests/test_mutants.py"),
    "mechanism.noise": ("tests/mechanism", *CHOICES),
    "columns.adaptive_histogram": ("tests/columns/test_adaptive_histogram.py", "tests/release/test_looks.py"),
    "columns.cells": ("tests/columns/test_cells.py",),
    "scoring.base": ("tests/scoring/test_weights.py", "tests/scoring/test_threshold_by_label.py", *GUARANTEE),
    "scoring.transfer": ("tests/release/test_borrowed.py",),
    "scoring.pairwise": PAIRS,
    "scoring.rarity": GUARANTEE,
    "scoring.stage": ("tests/columns/test_looks_of_a_run.py", "tests/scoring/test_threshold_by_label.py"),
    "scoring.threshold": (
        "tests/scoring/test_threshold_by_label.py",
        "tests/scoring/test_lost_mass.py",
        "tests/scoring/test_weights.py",
        "tests/release/test_account.py",
        *GUARANTEE,
    ),
    "scoring.weights": ("tests/scoring/test_weights.py", "tests/scoring/test_lost_mass.py"),
}
"""The tests of each module."""

_COMPARED = {
    ast.Lt: ("<", "<=", ">="),
    ast.LtE: ("<=", "<", ">"),
    ast.Gt: (">", ">=", "<="),
    ast.GtE: (">=", ">", "<"),
}
_COMPARED |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
_COMPARED |= {ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")}
_BINARY = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Pow: ("**", "*"),
}
_BINARY |= {ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<")}
_BINARY |= {ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"), ast.MatMult: ("@", "*"), ast.BitXor: ("^", "|")}
_BUILTIN = {"min": "max", "max": "min", "any": "all", "all": "any", "round": "int"}
_METHOD = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_METHOD |= {
    "floor": "ceil",
    "ceil": "floor",
    "rint": "floor",
    "trunc": "ceil",
    "argmin": "argmax",
    "argmax": "argmin",
}
_METHOD |= {"ones": "zeros", "zeros": "ones", "log": "log1p", "log1p": "log", "exp": "expm1", "expm1": "exp"}
_METHOD |= {"cumsum": "cumprod", "sum": "prod", "prod": "sum", "mean": "max", "median": "min", "isfinite": "isnan"}
_WORDS = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class Edit:
    """From one byte of a source to another, other text."""

    start: int
    end: int
    text: str
    kind: str
    inside: bool


class Places:
    """Where a source can be changed."""

    def __init__(self, source: str) -> None:
        self.source, self.bytes = source, source.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def edits(self) -> Iterator[Edit]:
        """All of them."""
        self.inside = False
        yield from self._of(ast.parse(self.source))

    def _of(self, node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return  # messages, and what the types need
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            return  # which type a value has
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            before = self.inside
            self.inside |= isinstance(node, ast.FunctionDef) and field == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_docstring(child):
                    yield from self._of(child)
            self.inside = before
        yield from self._own(node)

    def _own(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in _COMPARED:
                old, *others = _COMPARED[type(op)]
                for other in others:
                    yield self._between(left, right, old, other, "comparison")
            case ast.Compare(ops=[first, _], left=left, comparators=[middle, _]) if type(first) in _COMPARED:
                yield self._between(left, middle, *_COMPARED[type(first)][:2], "comparison")
            case ast.BinOp(op=ast.BitOr(), right=ast.Name(id=name)) if name[0].isupper() and not name.isupper():
                pass  # a type or another
            case ast.BinOp(left=left, op=op, right=right):
                yield self._between(left, right, *_BINARY[type(op)], "arithmetic")
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield self._between(left, right, *words, "logic")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield Edit(self._at(node)[0], self._at(operand)[0], "", "sign or not", self.inside)
            case ast.Constant(value=bool(value)):
                yield self._all(node, str(not value), "constant")
            case ast.Constant(value=int(value)) if isinstance(value, int):
                yield self._all(node, str(value + 1), "constant")
                if value > 1:
                    yield self._all(node, str(value - 1), "constant")
            case ast.Constant(value=0.0):
                yield self._all(node, "1.0", "constant")
            case ast.Constant(value=float(value)):
                yield self._all(node, repr(value * 2), "constant")
                yield self._all(node, repr(value / 2), "constant")
            case ast.Constant(value=str(value)) if value in _WORDS:
                yield self._all(node, repr(_WORDS[value]), "side")
            case ast.Call(func=ast.Attribute(attr=name) as function) if name in _METHOD:
                _, end = self._at(function)
                yield Edit(end - len(name), end, _METHOD[name], "function", self.inside)
            case ast.Call(func=ast.Name(id=name) as function) if name in _BUILTIN:
                yield self._all(function, _BUILTIN[name], "function")
            case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test) if (
                "TYPE_CHECKING" not in self._text(test)
            ):
                yield self._all(test, f"(not ({self._text(test)}))", "condition")
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield self._all(node, "pass", "dropped statement")
            case ast.Return(value=ast.BinOp() | ast.Call() | ast.Name() as value):
                if isinstance(value, ast.BinOp):
                    yield self._all(value, self._text(value.left), "dropped operand")
                elif isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
                    yield self._all(value, f"({self._text(value.args[0])})", "dropped call")

    def _at(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._at(node)
        return self.bytes[start:end].decode()

    def _all(self, node: ast.AST, text: str, kind: str) -> Edit:
        return Edit(*self._at(node), text, kind, self.inside)

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> Edit:
        """The operator between two operands."""
        start, end = self._at(left)[1], self._at(right)[0]
        place = start + self.bytes[start:end].decode().index(old)
        return Edit(place, place + len(old), new, kind, self.inside)

    def changed(self, edit: Edit) -> str:
        """The source after an edit."""
        return (self.bytes[: edit.start] + edit.text.encode() + self.bytes[edit.end :]).decode()


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def changes_of(module: str) -> dict[str, Change]:
    """All changes of a module, by a name that says where and what they are."""
    name = f"repsynth.{module}"
    places, found = Places(path_of(name).read_text()), {}
    own = str(path_of(name).relative_to(ROOT))
    for edit in places.edits():
        line = places.bytes[: edit.start].count(b"\n")
        old = places.bytes[edit.start : edit.end].decode().split("\n")[0][:40]
        place = f"{module}:{line + 1}:{edit.start - places.starts[line]}"
        label = f"{place} {edit.kind}: {old!r} -> {edit.text.partition(chr(10))[0][:50]!r}"
        found[label] = Change(label, name, places.changed(edit), (own, *TESTS[module]), edit.inside)
    return found


def is_python(change: Change) -> bool:
    """Whether the changed module can be compiled at all."""
    try:
        compile(change.source, change.module, "exec")
    except SyntaxError:
        return False
    return True


def draw(number: int, seed: int) -> list[Change]:
    """So many changes of all modules."""
    generator = random.Random(seed)
    every = {module: list(changes_of(module).values()) for module in TESTS}
    roots = {module: len(changes) ** 0.5 for module, changes in every.items()}
    scale = number / sum(roots.values())
    drawn = []
    for module, changes in every.items():
        generator.shuffle(changes)
        drawn += list(islice(filter(is_python, changes), round(roots[module] * scale)))
    generator.shuffle(drawn)  # so that the first of them, too, are of all modules
    return drawn


def unchanged(module: str) -> Change:
    """The module as it is: its tests pass."""
    name = f"repsynth.{module}"
    own = str(path_of(name).relative_to(ROOT))
    return Change(f"{module}: unchanged", name, path_of(name).read_text(), (own, *TESTS[module]), inside=True)


def main() -> None:
    """Draw, run, and print each outcome and how many there were of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="modules whose name holds this")
    parser.add_argument("--again", nargs="*", default=[], help="changes by name, in place of drawn ones")
    parser.add_argument("--after", type=Path, help="what an earlier run printed: changes in it are not run again")
    options = parser.parse_args()
    if options.again:
        every = {name: change for module in TESTS for name, change in changes_of(module).items()}
        changes = [every[name] for name in options.again]
    else:
        changes = draw(options.number, options.seed)
    changes = [change for change in changes if options.only in change.name.partition(":")[0]]
    if options.after:
        done = {line.partition(" ")[2].strip() for line in options.after.read_text().splitlines()}
        changes = [change for change in changes if change.name not in done]
    print(f"{len(changes)} changes", flush=True)

    # The unchanged modules, too: else a test that fails here whatever is changed would pass for one that notices.
    inside = [change for change in changes if change.inside]
    inside += [unchanged(module) for module in TESTS if any(f".{module}" in change.module for change in inside)]
    outside = [replace(change, tests=("-m", QUICK, *change.tests)) for change in changes if not change.inside]
    found: dict[str, str] = {}

    def tell(change: Change, outcome: str) -> None:
        print(f"{outcome:9} {change.name}", flush=True)
        found[change.name] = outcome

    for change, outcome in outcomes(outside, workers=options.workers):
        tell(change, outcome)
    outcomes_inside(inside, tell, "-m", QUICK, workers=options.workers)
    for module in TESTS:
        print(f"{module:24} {dict(Counter(found[name] for name in found if name.startswith(f'{module}:')))}")
    print("all", dict(Counter(outcome for name, outcome in found.items() if "unchanged" not in name)))


if __name__ == "__main__":
    main()

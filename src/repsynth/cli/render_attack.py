"""What `attack` prints: who could be found, by whom, and whether that is more than guessing."""

from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from repsynth.attacks.results import ATTACKS, BARE, BEST, METHODS, REPS, UNIFORM, Exposure, Guess, Line
from repsynth.attacks.statistics import Estimate
from repsynth.cli.render import guarantee, make_table, print_table
from repsynth.privacy.shown import (
    at_least,
    at_most,
    fixed_at_least,
    fixed_at_most,
    percent_at_least,
    percent_at_most,
)

_METHODS = {BARE: "no noise", UNIFORM: "uniform", REPS: "as planned"}
_TOP = 10


def exposure(console: Console, found: Exposure, folder: Path) -> None:
    console.print("[bold red]PRIVATE[/bold red]: attacks on the data itself; for the curator only.\n")
    console.print(
        f"{found.targets:,} of {found.rows:,} {found.unit} were attacked, each in half of {found.runs:,} runs of "
        f"{found.model} with {guarantee(found.epsilon, found.delta)}. AUC 0.5 is guessing. Intervals: "
        f"{found.confidence:.0%}.\n"
    )
    top = [line for line in found.lines if line.decile == _TOP]
    if top:
        console.print(f"[bold]The most outlying tenth[/bold] ({top[0].targets} targets)")
        _attacks(console, top)
    everybody = [line for line in found.lines if line.decile is None]
    console.print(f"\n[bold]All targets[/bold] ({everybody[0].targets})")
    _attacks(console, everybody)
    _deciles(console, found)
    if found.guesses:
        console.print("\n[bold]Guesses[/bold] about people of the table against people from outside")
        _guesses(console, found.guesses)
    _proven(console, found)
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    _who(console, dict.fromkeys(line.attack for line in sorted(found.lines, key=_order)))
    console.print(f"\nAll runs and numbers are in {escape(str(folder))}: PRIVATE.")


def _who(console: Console, attacks: Iterable[str]) -> None:
    console.print("\n[bold]What the attacker has[/bold], each on top of the one before")
    print_table(console, ("attack", ""), ((name, ATTACKS[name]) for name in attacks), right_from=99)


def _attacks(console: Console, lines: Iterable[Line]) -> None:
    columns: dict[str, Callable[[Line], str]] = {
        "AUC": lambda line: _interval(line, line.area, ""),
        "advantage": lambda line: _interval(line, line.advantage, "+"),
        "found at 1 %": lambda line: _rate(line, line.rate_at_1),
    }
    shown = [name for name in columns if name != "advantage" or console.width >= 112]
    table = make_table("attack", "weights", *shown, "verdict", right_from=99)
    last = ""
    for line in sorted(lines, key=_order):
        name = line.attack if line.attack != last else ""
        table.add_row(name, _METHODS[line.method], *(columns[each](line) for each in shown), _verdict(line))
        last = line.attack
    console.print(table)
    if len(shown) < len(columns):
        console.print("[dim]Column hidden to fit the screen: advantage (--json has all).[/dim]")


def _order(line: Line) -> tuple[int, int]:
    return list(ATTACKS).index(line.attack), METHODS.index(line.method)


def _verdict(line: Line) -> str:
    if line.exceeded:
        return f"[bold red]{line.verdict}[/bold red]"
    dim = line.attack == BEST or line.area.low <= 0.5
    return line.verdict if dim else f"[yellow]{line.verdict}[/yellow]"


def _interval(line: Line, found: Estimate, sign: str) -> str:
    if line.attack == BEST:  # a bound
        return f"{sign}{fixed_at_most(found.value, 2)}"
    return f"{found.value:{sign}.2f}" + escape(
        f" [{fixed_at_least(found.low, 2)}, {fixed_at_most(found.high, 2)}]"
    )


def _rate(line: Line, found: Estimate | None) -> str:
    if found is None:
        return "too few"
    if line.attack == BEST:
        return percent_at_most(found.value)
    return f"{found.value:.1%} (≤ {percent_at_most(found.high, 0)})"


def _deciles(console: Console, found: Exposure) -> None:
    name = "shadow runs, release"
    methods = list(dict.fromkeys(line.method for line in found.lines))
    console.print(
        f"\n[bold]By decile of outlyingness[/bold] (10: the most outlying): {name}, and the best possible"
    )
    headers = [header for method in methods for header in (f"AUC, {_METHODS[method]}", "best")]
    table = make_table("decile", "targets", *headers, right_from=0)
    by_key = {(line.decile, line.method, line.attack): line for line in found.lines}
    for decile in sorted({line.decile for line in found.lines if line.decile is not None}):
        cells = []
        for method in methods:
            seen, best = by_key.get((decile, method, name)), by_key[decile, method, BEST]
            cells += ["" if seen is None else _interval(seen, seen.area, ""), fixed_at_most(best.area.value, 2)]
        table.add_row(str(decile), str(best.targets), *cells)
    console.print(table)


def _guesses(console: Console, guesses: list[Guess]) -> None:
    wide = console.width >= 110
    numbers = ("members", "others", *(("excess", "interval") if wide else ()))
    table = make_table("guess", "weights", *numbers, "verdict", right_from=99)
    for column in table.columns[2:-1]:
        column.justify = "right"
    last = ""
    for guess in sorted(guesses, key=lambda guess: (guess.kind, METHODS.index(guess.method))):
        found = guess.verdict.startswith("members")
        low, high = guess.excess.low, guess.excess.high
        ends = f"{'+' * (low >= 0)}{percent_at_least(low)} to {'+' * (high >= 0)}{percent_at_most(high)}"
        excess = (f"{guess.excess.value:+.1%}", ends)
        table.add_row(
            guess.kind if guess.kind != last else "",
            _METHODS[guess.method],
            f"{guess.members.value:.1%}",
            f"{guess.others.value:.1%}",
            *(excess if wide else ()),
            f"[yellow]{guess.verdict}[/yellow]" if found else guess.verdict,
        )
        last = guess.kind
    console.print(table)


def _proven(console: Console, found: Exposure) -> None:
    lines = [line for line in found.lines if line.proven_epsilon is not None and line.method != BARE]
    most = max(lines, key=lambda line: line.proven_epsilon or 0.0)
    where = "all targets" if most.decile is None else f"decile {most.decile}"
    if not most.proven_epsilon:
        console.print(f"\nNone of the {len(lines):,} attacks proves any loss at all, all taken together.")
    else:
        console.print(
            f"\nThe most that one of the {len(lines):,} attacks proves, all taken together: "
            f"ε = {at_least(most.proven_epsilon, 3)} ({most.attack}, {_METHODS[most.method]}, {where}), where "
            f"{at_most(most.claimed_epsilon, 3)} is claimed."
        )
    broken = [line for line in lines if line.exceeded]
    if not broken:
        console.print("No attack proves more than is claimed.")
        return
    names = ", ".join(sorted({f"{line.attack} ({_METHODS[line.method]})" for line in broken}))
    console.print(
        f"[bold red]An attack proves more than is claimed[/bold red]: {names}. Do not hand out this release."
    )

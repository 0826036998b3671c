"""What `attack` prints: who could be found, by whom, and whether that is more than guessing."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from repsynth.attacks.exposure import ATTACKS, BEST, REPS, UNIFORM, Exposure, Guess, Line
from repsynth.attacks.intervals import Estimate
from repsynth.cli.render import make_table

_METHODS = {UNIFORM: "uniform", REPS: "as planned"}
_TOP = 10


def exposure(console: Console, found: Exposure, folder: Path) -> None:
    """Tables for the most outlying and for all targets, by decile, guesses, and what was proven."""
    console.print("[bold red]PRIVATE[/bold red]: attacks on the data itself; for the curator only.\n")
    console.print(
        f"{found.targets:,} of {found.rows:,} records were attacked, each in half of {found.runs:,} runs of "
        f"{found.model} at ε = {found.epsilon:.4g}, δ = {found.delta:.3g}. AUC 0.5 is guessing. Intervals: "
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
        _guesses(console, [guess for guess in found.guesses if guess.decile in (None, _TOP)])
    _proven(console, found)
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    console.print(f"\nAll runs and numbers are in {escape(str(folder))}, PRIVATE. {_know()}")


def estimate(seconds: float) -> str:
    """How long it will take, in words.

    >>> estimate(30), estimate(600)
    ('This will take about 30 seconds.', 'This will take about 10 minutes.')
    """
    if seconds < 90:
        return f"This will take about {seconds:.0f} seconds."
    return f"This will take about {seconds / 60:.0f} minutes. It can be stopped, and goes on when started again."


def _know() -> str:
    known = "; ".join(f"[italic]{name}[/italic] {what}" for name, what in ATTACKS.items())
    return f"What each attacker has, on top of the one before: {known}."


def _attacks(console: Console, lines: Iterable[Line]) -> None:
    headers = ("AUC", "", "advantage", "", "found at 1 %", "at 0.1 % false alarms")
    table = make_table("attack", "weights", *headers, "verdict", right_from=99)
    for column in (2, 4, 6, 7):
        table.columns[column].justify = "right"
    ordered = sorted(lines, key=lambda line: (list(ATTACKS).index(line.attack), line.method == REPS))
    for line in ordered:
        table.add_row(
            line.attack if line.method == ordered[0].method else "",
            _METHODS[line.method],
            f"{line.area.value:.3f}",
            _ends(line, line.area, 2),
            f"{line.advantage.value:+.3f}",
            _ends(line, line.advantage, 2),
            _rate(line, line.rate_at_1),
            _rate(line, line.rate_at_01),
            _verdict(line),
        )
    console.print(table)


def _verdict(line: Line) -> str:
    if line.exceeded:
        return f"[bold red]{line.verdict}[/bold red]"
    dim = line.attack == BEST or line.area.low <= 0.5
    return line.verdict if dim else f"[yellow]{line.verdict}[/yellow]"


def _ends(line: Line, found: Estimate, digits: int) -> str:
    return "" if line.attack == BEST else f"{found.low:.{digits}f} to {found.high:.{digits}f}"


def _rate(line: Line, found: Estimate | None) -> str:
    if found is None:
        return "too few runs"
    value = f"{found.value:.1%}"
    return value if line.attack == BEST else f"{value} (≤ {found.high:.1%})"


def _deciles(console: Console, found: Exposure) -> None:
    """By decile: the strongest attack that was carried out, and the bound."""
    name = "shadow runs, release"
    methods = list(dict.fromkeys(line.method for line in found.lines))
    console.print(
        f"\n[bold]By decile of outlyingness[/bold]: AUC of {name}; advantage of the best possible attack; ε"
    )
    headers = [f"{what}, {_METHODS[method]}" for what in ("AUC", "best", "ε at most") for method in methods]
    table = make_table("decile", "targets", *headers, right_from=1)
    by_key = {(line.decile, line.method, line.attack): line for line in found.lines}
    for decile in range(1, 11):
        some = [line for line in found.lines if line.decile == decile]
        if not some:
            continue
        cells = []
        for method in methods:
            line = by_key.get((decile, method, name))
            cells.append(
                "" if line is None else f"{line.area.value:.2f} ({line.area.low:.2f} to {line.area.high:.2f})"
            )
        best = [by_key[decile, method, BEST] for method in methods]
        cells += [f"{line.advantage.value:.3f}" for line in best]
        cells += [f"{line.claimed_epsilon:.3g}" for line in best]
        table.add_row(str(decile), str(some[0].targets), *cells)
    console.print(table)


def _guesses(console: Console, guesses: list[Guess]) -> None:
    table = make_table("guess", "who", "weights", "members", "others", "excess", "", "verdict", right_from=99)
    for column in (3, 4, 5):
        table.columns[column].justify = "right"
    for guess in sorted(guesses, key=lambda guess: (guess.kind, guess.decile or 0, guess.method == REPS)):
        found = guess.verdict.startswith("members")
        table.add_row(
            guess.kind,
            "all" if guess.decile is None else "top tenth",
            _METHODS[guess.method],
            f"{guess.members.value:.1%}",
            f"{guess.others.value:.1%}",
            f"{guess.excess.value:+.1%}",
            f"{guess.excess.low:+.1%} to {guess.excess.high:+.1%}",
            f"[yellow]{guess.verdict}[/yellow]" if found else guess.verdict,
        )
    console.print(table)


def _proven(console: Console, found: Exposure) -> None:
    lines = [line for line in found.lines if line.proven_epsilon is not None]
    most = max(lines, key=lambda line: line.proven_epsilon or 0.0)
    where = "all targets" if most.decile is None else f"decile {most.decile}"
    console.print(
        f"\nThe most that an attack proves, for all {len(lines):,} lines at once: ε = {most.proven_epsilon:.3g} "
        f"({most.attack}, {_METHODS[most.method]}, {where}), where {most.claimed_epsilon:.3g} is claimed."
    )
    broken = [line for line in lines if line.exceeded]
    if not broken:
        console.print("No attack proves more than is claimed.")
        return
    names = ", ".join(sorted({f"{line.attack} ({_METHODS[line.method]})" for line in broken}))
    console.print(
        f"[bold red]An attack proves more than is claimed[/bold red]: {names}. Do not hand out this release."
    )

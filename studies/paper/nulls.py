"""Two experiments in which there is nothing to find, on the attack as published.

The reference set of the published attack holds the non-members themselves. Each of them is its own
nearest reference record, at distance zero; no member is. That alone tells them apart, so the attack
succeeds where it must not: with a constant in place of the distance to the synthetic records, and
against records that the synthesizer never saw. With a reference that holds no target, hardly anything is left.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from repsynth.errors import ConfigError
from repsynth.evaluation.points import deciles_of, make_attacks, nearest, outlyingness
from studies.paper import STAMP
from studies.paper.grid import Cell
from studies.paper.literal import literal_targets, load_literal, make_literal_targets, synthesize
from studies.paper.summary import TITLES, interval, published
from studies.split import advantage_by_decile

EXPERIMENTS = {
    "as published": "members: training records",
    "constant distance": "the synthetic records are not looked at",
    "strangers as members": "members: validation records, which the synthesizer never saw",
    "disjoint reference": "members: training records; the reference holds no target",
}


SEEDS = {"sim": 25, "breast_cancer": 200, "adult": 5, "german_credit": 200}
"""How many splits by default: small tables need more for a narrow interval, and take no time."""


class Finding(msgspec.Struct, frozen=True):
    """The top-decile advantage of one experiment on one dataset: its mean over seeds and an interval."""

    dataset: str
    experiment: str
    mean: float
    low: float
    high: float


class Findings(msgspec.Struct, frozen=True):
    """All findings, and what they say. The synthesizer has no noise: the attack could not have it easier."""

    findings: tuple[Finding, ...]
    sentences: tuple[str, ...]
    note: str = STAMP


def run_nulls(
    names: Sequence[str],
    seeds: int | None,
    data_dir: str | None,
    on_done: Callable[[str, int], None] = lambda name, done: None,
) -> Findings:
    """Run the published attack as it is, on nothing, on strangers, and with a disjoint reference."""
    if seeds is not None and not 2 <= seeds <= 1000:
        raise ConfigError("an interval needs 2 seeds at least (and at most 1000)")
    findings = []
    done = 0
    for name in names:
        values = []
        for seed in range(seeds or SEEDS[name]):
            values.append(top_advantages(name, seed, data_dir))
            done += 1
            on_done(name, done)
        for experiment in EXPERIMENTS:
            found = [value[experiment] for value in values]
            low, high = interval(found)
            findings.append(Finding(name, experiment, float(np.mean(found)), max(low, -1.0), min(high, 1.0)))
    return Findings(tuple(findings), tuple(_sentence(name, findings) for name in names))


def top_advantages(name: str, seed: int, data_dir: str | None) -> dict[str, float]:
    """The advantage on the top decile in each experiment, without noise."""
    split, targets = load_literal(name, seed, data_dir), literal_targets(name, seed, data_dir)
    synthetic = synthesize(Cell("paper", name, seed, None, "non-private"), split, data_dir, None)
    strangers = make_literal_targets(split.validation, split)

    # Half of the test records are targets, the other half the reference.
    half = np.random.default_rng(seed).permutation(len(split.test))
    outside, reference = (split.test.take(rows) for rows in np.array_split(half, 2))
    inside = split.train.take(np.random.default_rng(seed).permutation(len(split.train))[: len(outside)])
    places = np.vstack([targets.space.place(inside), targets.space.place(outside)])
    attacks = make_attacks(
        nearest(places, targets.space.place(synthetic)), nearest(places, targets.space.place(reference))
    )
    member = np.arange(len(places)) < len(inside)
    return {
        "as published": targets.attack(synthetic)[0][-1],
        "constant distance": targets.attack(None)[0][-1],
        "strangers as members": strangers.attack(synthetic)[0][-1],
        "disjoint reference": advantage_by_decile(attacks.density, member, deciles_of(outlyingness(places)))[-1],
    }


def show_nulls(console: Console, findings: Findings) -> None:
    """The findings as a table and in words."""
    table = Table(
        title="Top-10 % advantage of the published attack, without privacy", title_justify="left", box=None
    )
    table.add_column("dataset")
    table.add_column("(paper)", justify="right")
    for experiment in EXPERIMENTS:
        table.add_column(experiment, justify="right")
    for name in dict.fromkeys(finding.dataset for finding in findings.findings):
        cells = [_interval(finding) for finding in findings.findings if finding.dataset == name]
        table.add_row(TITLES[name], f"{published()[name, 0.5, 'non-private']['top']:.3f}", *cells)
    console.print(table, "")
    for experiment, meaning in EXPERIMENTS.items():
        console.print(f"{experiment}: {meaning}", markup=False)
    console.print()
    for sentence in findings.sentences:
        console.print(sentence, markup=False)
    console.print(f"[bold]This is {STAMP}.[/bold]")


def _interval(finding: Finding) -> str:
    return f"{finding.mean:.2f} [{finding.low:.2f}, {finding.high:.2f}]"


def _sentence(name: str, findings: Sequence[Finding]) -> str:
    by = {finding.experiment: finding for finding in findings if finding.dataset == name}
    chance = by["disjoint reference"]
    verdict = "not distinguishable from chance" if chance.low <= 0 <= chance.high else "not at chance"
    return (
        f"{TITLES[name]}: the published attack reads {_interval(by['as published'])}; it still reads "
        f"{_interval(by['constant distance'])} when it does not look at the synthetic records, and "
        f"{_interval(by['strangers as members'])} on records that were not used. "
        f"With a disjoint reference it is {verdict}: {_interval(chance)}."
    )

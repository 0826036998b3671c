"""`repsynth schema`: a draft to be confirmed by hand, or one that is measured and paid for."""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from repsynth.cli import commands
from repsynth.cli.commands import check_new, print_result
from repsynth.cli.flags import reading_of
from repsynth.cli.render import guarantee, make_table, warnings
from repsynth.curator.draft import check_described
from repsynth.curator.private_schema import MeasuredDraft, measure_schema
from repsynth.data.sources import open_source
from repsynth.errors import ConfigError
from repsynth.pipeline.payment import open_payer
from repsynth.schema import load_schema
from repsynth.schema.sdv import load_sdv, to_sdv
from repsynth.storage.atomic import beside

_DELTA = 1e-10
_MEASURING = {
    "epsilon": "--epsilon",
    "delta": "--delta",
    "one_row_per_person": "--one-row-per-person",
    "id": "--id",
    "public_rows": "--public-rows",
    "ledger": "--ledger",
    "dataset": "--dataset",
}


def schema(options: argparse.Namespace) -> None:
    if options.to_sdv is not None:
        to_metadata(options)
        return
    if options.private:
        measured(options)
        return
    given = [flag for name, flag in _MEASURING.items() if getattr(options, name) is not None]
    if given:
        raise ConfigError(f"{given[0]} is for a schema that is measured; add --private, or leave it out")
    commands.schema(options)


def to_metadata(options: argparse.Namespace) -> None:
    """Write SDV's metadata of a schema; no table is read."""
    check_new(options.to_sdv, "--to-sdv")
    if len(options.data) != 1 or Path(options.data[0]).suffix.lower() != ".toml":
        raise ConfigError("--to-sdv writes metadata of a schema: name one schema.toml in place of the data")
    made = to_sdv(load_schema(options.data[0]))
    with beside(options.to_sdv) as temporary:
        temporary.write_text(json.dumps(made, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    written = f"Wrote {escape(str(options.to_sdv))}. SDV's metadata has neither bounds nor categories nor rules."
    print_result(options, {"metadata": str(options.to_sdv)}, lambda console: console.print(written))


def measured(options: argparse.Namespace) -> None:
    check_new(options.output, "-o")
    if options.epsilon is None:
        raise ConfigError("a measured schema costs privacy; say how much with --epsilon")
    reading = reading_of(options)
    source = open_source(options.data, reading)
    described = check_described({} if options.metadata is None else load_sdv(options.metadata), source.names)
    draft = measure_schema(
        source,
        epsilon=options.epsilon,
        delta=_DELTA if options.delta is None else options.delta,
        one_row_per_person=options.one_row_per_person is True,
        label=options.label,
        ids=list(dict.fromkeys([*(options.id or ()), *(n for n, told in described.items() if told.kind == "id")])),
        rows=options.public_rows,
        decimal=reading.decimal,
        payer=open_payer(options.ledger, options.dataset),
    )
    with beside(options.output) as temporary:
        temporary.write_text(draft.text, encoding="utf-8")
    data: dict[str, Any] = {"schema": str(options.output), "confirmed": True, "publishable": True}
    fields = msgspec.to_builtins(draft)
    del fields["text"]
    print_result(options, data | fields, lambda console: _tell(console, draft, options))


def _tell(console: Console, draft: MeasuredDraft, options: argparse.Namespace) -> None:
    console.print(f"Spent {guarantee(draft.epsilon, draft.delta)}.\n")
    table = make_table("column", "type", "what was found", right_from=3)
    for column in draft.columns:
        kind = "[yellow]id[/yellow]" if column.type == "id" else column.type
        bounds = " to ".join(line.split(" = ")[1] for line in column.lines if line.startswith(("min", "max")))
        table.add_row(escape(column.name), kind, escape(f"{column.reason}: {bounds}" if bounds else column.reason))
    console.print(table)
    console.print(
        f"\nWhat it cannot find: values in fewer than about {draft.fewest:,} rows, and what lies beyond a bound "
        f"with fewer than about {draft.least:,} rows."
    )
    warnings(console, draft.warnings)
    for column in draft.columns:
        if column.type != "id":
            warnings(console, (f"{column.name}: {warning}" for warning in column.warnings))
    console.print(
        f"Wrote {escape(str(options.output))}. It may be published and needs no confirmation; where something is "
        "publicly known, write that in its place."
    )

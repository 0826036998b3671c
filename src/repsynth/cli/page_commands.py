"""The commands that write a page: `report`, a release for everybody, and `explore`, to choose a plan with."""

import argparse

from rich.console import Console
from rich.markup import escape

from repsynth.cli.commands import check_new, print_result
from repsynth.errors import ConfigError
from repsynth.release.release import Release
from repsynth.schema import load_schema
from repsynth.storage.atomic import beside


def report(options: argparse.Namespace) -> None:
    """Write the public page of a release."""
    from repsynth.report.page import public_page

    _check(options)
    _write(options, public_page(options.release), "it is public, as the release is")


def explore(options: argparse.Namespace) -> None:
    """Write the page to choose a plan with."""
    from repsynth.report.page import explore_page

    _check(options)
    release = None if options.release is None else Release.load(options.release)
    if options.schema is not None:
        schema = load_schema(options.schema)
    elif release is not None:
        schema = release.schema
    else:
        raise ConfigError("there is nothing to plan for; give --schema, or --release")
    _write(options, explore_page(schema, release), "nothing was spent")


def _check(options: argparse.Namespace) -> None:
    """Refuse a place where no page can be, before any work is done."""
    if options.output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{options.output}: this is a web page; give it a name that ends in .html")
    check_new(options.output, "-o")


def _write(options: argparse.Namespace, page: str, last: str) -> None:
    with beside(options.output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    size = len(page.encode())

    def tell(console: Console) -> None:
        console.print(
            f"Wrote {escape(str(options.output))} ({size / 1000:,.0f} kB). It opens in any browser, without a "
            f"network; {last}."
        )

    print_result(options, {"output": str(options.output), "private": False, "bytes": size}, tell)

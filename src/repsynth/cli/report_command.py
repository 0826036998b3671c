"""The `report` command: a release as one page."""

import argparse

from rich.console import Console
from rich.markup import escape

from repsynth.cli.commands import check_new, print_result
from repsynth.errors import ConfigError
from repsynth.storage.atomic import beside


def report(options: argparse.Namespace) -> None:
    """Write the public page."""
    from repsynth.report.page import public_page

    if options.output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{options.output}: a report is a web page; give it a name that ends in .html")
    check_new(options.output, "-o")
    page = public_page(options.release)
    with beside(options.output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    size = len(page.encode())

    def tell(console: Console) -> None:
        console.print(
            f"Wrote {escape(str(options.output))} ({size / 1000:,.0f} kB): public, as the release is. "
            "It opens in any browser, without a network."
        )

    print_result(options, {"output": str(options.output), "private": False, "bytes": size}, tell)

"""The commands that write a page: `report`, a release for everybody, and `explore`, to choose a plan with."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from repsynth.cli.commands import check_new, print_result
from repsynth.cli.evaluate_command import step_bar
from repsynth.cli.flags import reading_of
from repsynth.data.sources import open_source
from repsynth.errors import ConfigError, shown
from repsynth.release.release import Release
from repsynth.schema import load_schema
from repsynth.storage.atomic import beside


def report(options: argparse.Namespace) -> None:
    """Write the public page of a release or, if asked, the curator's."""
    if options.curator:
        _curator(options)
        return
    for name in ("train", "holdout", "attack"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} is for the PRIVATE page alone; add --curator, or leave it out")
    from repsynth.report.page import public_page

    _check(options)
    page, publishable = public_page(options.release), Release.load(options.release).publishable
    last = "it is public, as the release is" if publishable else "the noise came from a seed: do not publish it"
    _write(options, page, last, publishable=publishable)


def _curator(options: argparse.Namespace) -> None:
    from repsynth.report.page import CURATOR_STEPS, curator_page

    if options.train is None:
        raise ConfigError(
            "the curator's page needs the table that the release was made from; give it with --train"
        )
    _check(options)
    _check_private(options.output)
    reading = reading_of(options)
    train = open_source(options.train, reading)
    holdout = None if options.holdout is None else open_source(options.holdout, reading)
    with step_bar(options, len(CURATOR_STEPS)) as step:
        page = curator_page(options.release, train, holdout, options.attack, on_step=step)
    _write(options, page, "it is PRIVATE: for the curator only", publishable=False, private=True)


def _check_private(path: Path) -> None:
    """A private page says so in its name, and is no part of a release."""
    if "private" not in path.name.lower():
        better = path.with_name(f"private-{path.name}")
        raise ConfigError(
            f"{shown(path)}: the curator's page is PRIVATE, and its name must say so; give -o {shown(better)}"
        )
    for folder in (path.resolve().parent, *path.resolve().parents):
        if (folder / "release.json").exists():
            raise ConfigError(
                f"{shown(folder)}: is a release, which is public; put the PRIVATE page elsewhere with -o"
            )


def explore(options: argparse.Namespace) -> None:
    from repsynth.report.page import explore_page

    _check(options)
    release = None if options.release is None else Release.load(options.release)
    if options.schema is not None:
        schema = load_schema(options.schema)
    elif release is not None:
        schema = release.schema
    else:
        raise ConfigError("there is nothing to plan for; give --schema, or --release")
    publishable = release is None or release.publishable
    _write(options, explore_page(schema, release), "nothing was spent", publishable=publishable)


def _check(options: argparse.Namespace) -> None:
    """Refuse a place where no page can be, before any work is done."""
    if options.output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{shown(options.output)}: this is a web page; give it a name that ends in .html")
    check_new(options.output, "-o")


def _write(options: argparse.Namespace, page: str, last: str, *, publishable: bool, private: bool = False) -> None:
    with beside(options.output, private=private) as temporary:
        temporary.write_text(page, encoding="utf-8")
    size = len(page.encode())

    def tell(console: Console) -> None:
        console.print(
            f"Wrote {escape(str(options.output))} ({size / 1000:,.0f} kB). It opens in any browser, without a "
            f"network; {last}."
        )

    print_result(options, {"output": str(options.output), "publishable": publishable, "bytes": size}, tell)

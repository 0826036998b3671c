"""Extend Sphinx for this site: pages made from the code, notebooks, and a sample report."""

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import api
import commands
from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from notebooks import to_markdown
from sphinx.application import Sphinx

from repsynth.cli.main import main as repsynth
from repsynth.cli.main import make_app

MADE = {
    "reference/commands": ("<!-- made from the parsers -->", lambda: commands.reference(make_app())),
    "reference/python": ("<!-- made from the docstrings -->", api.reference),
}
"""Pages with a place for what is made from the code: where it stands, and what stands there."""


class NotebookParser(MystParser):
    """A notebook as a page: its text, its code, and the outputs that are kept in it."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """As Markdown."""
        super().parse(to_markdown(inputstring), document)


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is made from the code where a page has a place for it; what lies beside the docs is a page here."""
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./studies/benchmarks/README\.md", r"](\1benchmarks.md", source[0])
    if page in MADE:
        place, make = MADE[page]
        if place not in source[0]:
            raise ValueError(f"{page}: has no line '{place}'")
        source[0] = source[0].replace(place, make())


def write_sample_report(app: Sphinx, failure: Exception | None) -> None:
    """Write the report of the demo's release beside the pages, which link to it as sample-report.html."""
    if failure or app.builder.name != "html":
        return
    report = Path(app.outdir, "sample-report.html")
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        codes = [
            repsynth(["demo", "-o", f"{folder}/demo"]),
            repsynth(["report", f"{folder}/demo/release", "-o", str(report)]),
        ]
    if any(codes):
        raise RuntimeError("the sample report could not be made")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    app.connect("build-finished", write_sample_report)
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}

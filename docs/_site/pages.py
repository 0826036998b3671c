"""What Sphinx has to know of this site: pages that are made from the code, and notebooks."""

import re
from typing import Any

import api
import commands
from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from notebooks import to_markdown
from sphinx.application import Sphinx

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


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}

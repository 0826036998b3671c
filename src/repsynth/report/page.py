"""From facts to one file: a page that needs nothing but itself."""

from pathlib import Path
from typing import Any

import msgspec

import repsynth
from repsynth.errors import ConfigError
from repsynth.release.release import Release
from repsynth.schema import Schema

_PAGES = Path(__file__).parent / "pages"


def public_page(folder: Path) -> str:
    """The public page of the release in a folder.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> folder = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6).save(Path(tempfile.mkdtemp()) / "r")
    >>> "What is my own bound?" in public_page(folder)
    True
    """
    release = Release.load(folder)
    template = _template("report.html")
    from repsynth.report.public import public_facts

    facts = public_facts(release, folder)
    page: str = template.render(
        it=facts,
        style=_file("style.css"),
        own_bound=_file("own_bound.js"),
        page=_file("page.js"),
        data=_json(facts.calculator),
    )
    return page


def explore_page(schema: Schema, release: Release | None = None) -> str:
    """The page for choosing a plan: sliders over the closed forms; with a release, it starts at its settings.

    >>> from repsynth.schema import Boolean
    >>> "Save plan.toml" in explore_page(Schema(columns=(Boolean(name="smoker"),)))
    True
    """
    template = _template("explore.html")
    from repsynth.report.explore import explore_facts

    facts = explore_facts(schema, release)
    columns = len(schema.learned)
    page: str = template.render(
        count="1 column" if columns == 1 else f"{columns:,} columns",
        released=release is not None,
        notes=[] if release is None else facts["release"]["notes"],
        version=repsynth.__version__,
        style=_file("style.css"),
        own_style=_file("explore.css"),
        logic=_file("explore.js"),
        page=_file("explore_page.js"),
        data=_json(facts),
    )
    return page


def _template(name: str) -> Any:
    try:
        import jinja2
        import vl_convert  # noqa: F401
    except ImportError:
        raise ConfigError("a page needs more packages; pip install 'repsynth[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def _file(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """JSON that ends no script, whatever names are in it."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")

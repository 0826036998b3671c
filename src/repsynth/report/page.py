"""From facts to one file: a page that needs nothing but itself."""

from pathlib import Path

import msgspec

from repsynth.errors import ConfigError
from repsynth.release.release import Release

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
    try:
        import jinja2
        import vl_convert  # noqa: F401
    except ImportError:
        raise ConfigError("a report needs more packages; pip install 'repsynth[report]'") from None
    from repsynth.report.public import public_facts

    facts = public_facts(release, folder)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.get_template("report.html").render(
        it=facts,
        style=_file("style.css"),
        own_bound=_file("own_bound.js"),
        page=_file("page.js"),
        data=_json(facts.calculator),
    )
    return page


def _file(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """JSON that ends no script, whatever names are in it."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")

"""Render each kind of page to one HTML file that loads nothing else."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import repsynth
from repsynth.errors import ConfigError
from repsynth.evaluation.measures import STEPS
from repsynth.privacy.neighbours import of_persons, row_meaning
from repsynth.release.release import Release
from repsynth.schema import Schema, check_unit

CURATOR_STEPS = ("reading", *STEPS, "losses", "drawing")
"""The steps of making the curator's page, in this order."""

_PAGES = Path(__file__).parent / "pages"


def public_page(folder: Path) -> str:
    """Return the public page of the release in a folder.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes")
    >>> "What is my own bound?" in public_page(release.save(Path(tempfile.mkdtemp()) / "release"))
    True
    """
    release = Release.load(folder)
    render = _template("report.html")
    from repsynth.report.public import public_facts

    facts = public_facts(release, folder)
    return render(it=facts, own_bound=_file("own_bound.js"), page=_file("page.js"), data=_json(facts.calculator))


def curator_page(
    folder: Path,
    train: Any,
    holdout: Any = None,
    attack: Path | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> str:
    """Return the curator's page of a release and of the table that it was made from. PRIVATE.

    `holdout` are real rows that the release was not made from, `attack` is the folder of `repsynth attack`.
    """
    release = Release.load(folder)
    render = _template("curator.html", extras="report,evaluate")
    try:
        from repsynth.report.curator import curator_facts
    except ImportError:
        raise _missing("report,evaluate") from None

    return render(it=curator_facts(release, train, holdout, attack, on_step), own_style=_file("curator.css"))


def explore_page(schema: Schema, release: Release | None = None) -> str:
    """Return the page for choosing a plan by sliders; with a release, it starts at its settings.

    >>> from repsynth.schema import Boolean
    >>> "Save plan.toml" in explore_page(Schema(columns=(Boolean(name="smoker"),), one_row_per_person=True))
    True
    """
    check_unit(schema)
    render = _template("explore.html")
    from repsynth.report.explore import explore_facts

    facts = explore_facts(schema, release)
    columns = len(schema.learned)
    return render(
        count="1 column" if columns == 1 else f"{columns:,} columns",
        released=release is not None,
        notes=[] if release is None else facts["release"]["notes"],
        persons=None if schema.person is None else of_persons(schema.person),
        row=row_meaning(schema),
        rows_per_person=schema.rows_per_person,
        version=repsynth.__version__,
        own_style=_file("explore.css"),
        logic=_file("explore.js"),
        page=_file("explore_page.js"),
        data=_json(facts),
    )


def _missing(extras: str) -> ConfigError:
    return ConfigError(f"a page needs more packages; pip install 'repsynth[{extras}]'")


def _template(name: str, *, extras: str = "report") -> Callable[..., str]:
    try:
        import jinja2
        import vl_convert  # noqa: F401
    except ImportError:
        raise _missing(extras) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return partial(environment.get_template(name).render, style=_file("style.css"))


def _file(name: str) -> str:
    return (_PAGES / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """Return JSON that cannot end a script element."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")

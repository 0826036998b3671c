"""What a schema says of ids that are made anew, and of values that are rare together: read and checked."""

import re
from typing import Any

from repsynth.schema.columns import Category, Id
from repsynth.schema.id_formats import FAKES, IdFormat
from repsynth.schema.mistakes import Report, did_you_mean

FAMILIES = ("prefix", "parent", "rarest")
"""The keys of which one says which values of a category are rare together."""


def read_id(name: str, table: dict[str, Any], report: Report) -> Id | None:
    """An id, and how its values are written that are made anew."""
    form, fake, locale = (table.get(key) for key in ("format", "fake", "locale"))
    said: list[tuple[str, str]] = []
    if form is not None and fake is not None:
        said.append(("fake", "'format' and 'fake' exclude each other; keep one of them"))
    if form is not None and not isinstance(form, str):
        said.append(("format", "'format' must be text, for example format = \"###-##-####\""))
    elif form is not None and (problem := IdFormat(form).problem):
        said.append(("format", f"'format' is of no use: {problem}"))
    if fake is not None and (not isinstance(fake, str) or fake not in FAKES):
        said.append(("fake", f"'fake' must be one of {', '.join(FAKES)}{did_you_mean(fake, FAKES)}"))
    if locale is not None and (not isinstance(locale, str) or not re.fullmatch("[a-z]{2,3}_[A-Z]{2}", locale)):
        said.append(("locale", "'locale' must be a language and a country, for example locale = \"de_DE\""))
    elif locale is not None and fake is None:
        said.append(("locale", "'locale' is for ids that are made up; add 'fake', or leave it out"))
    for key, message in said:
        report(name, key, message)
    return None if said else Id(name=name, format=form, fake=fake, locale=locale)


def read_families(
    name: str, table: dict[str, Any], values: tuple[str, ...], report: Report
) -> dict[str, Any] | None:
    """Which values are rare together; None where that cannot be."""
    given = [key for key in FAMILIES if key in table]
    if not given:
        return {}
    key, problem = given[0], ""
    asked = table[key]
    if len(given) > 1:
        problem = f"'{given[0]}' and '{given[1]}' exclude each other; keep one of them"
    elif key == "prefix" and (isinstance(asked, bool) or not isinstance(asked, int) or not 0 < asked < 100):
        problem = "'prefix' must be how many characters of a value name its family, for example prefix = 3"
    elif key == "rarest" and asked != "together":
        problem = "'rarest' can only be \"together\""
    elif key == "parent":
        asked = {str(value).strip(): parent for value, parent in asked.items()} if isinstance(asked, dict) else {}
        if asked.keys() != set(values) or not all(isinstance(each, str) for each in asked.values()):
            problem = "'parent' must be a table with one entry for each of the values, and no other: its family"
        asked = tuple(asked.items())
    if not problem:
        families = Category(name=name, values=values, **{key: asked}).families or ()
        if len(values) > 1 and len(set(families)) == len(values):
            problem = f"'{key}' makes a family of every value; make it coarser, or leave it out"
    if problem:
        report(name, key, problem)
        return None
    return {key: asked}

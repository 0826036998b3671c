"""Draw lines and heat maps by Vega-Lite as SVG, and bars as rows of a table. A page needs no script for them.

Colours are CSS variables of `pages/style.css`, so that one picture serves light, dark and print. Every chart comes
with a description for screen readers and with its numbers as a table.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any

import msgspec

INK, QUIET, LINE = "var(--ink)", "var(--quiet)", "var(--line)"
BLUE, ORANGE = "var(--blue)", "var(--orange)"

_WIDTH = 420
"""Pixels. A page of 36 rem makes it a third larger, a phone a sixth smaller: letters stay legible on both."""

_NAMES = 130  # pixels for the names of rows
_AXIS: dict[str, Any] = {"ticks": False, "domain": False, "labelPadding": 6}

Row = tuple[str, ...]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """A bar, its interval and a second bar, in percent of a full one."""

    value: float
    low: float | None = None
    high: float | None = None
    other: float | None = None
    marked: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture, its description, and its numbers. Charts of bars have `marks`, one for each row, instead."""

    title: str
    svg: str
    words: str
    head: Row
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line of a chart with its name and optional intervals."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = BLUE
    intervals: Sequence[tuple[float, float]] | None = None
    dashed: bool = False
    marked: bool = False


def bars(
    title: str,
    words: str,
    head: Row,
    rows: Sequence[Row],
    *,
    values: Sequence[float],
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    others: Sequence[float] = (),
    marked: Sequence[bool] = (),
    full: float | None = None,
    percent: bool = True,
) -> Chart:
    """Draw a bar in each row of a table: at `low` and `high` its interval, below it a second bar of `others`.

    A full bar has the length `full`, by default a round number.

    >>> bars("", "Shares.", ("value", "share"), [("a", "7 %")], values=[0.07]).words
    'Shares. A full bar is 10 %.'
    """
    full = _round_up(max([*values, *high, *others])) if full is None else full

    def part(value: float | None) -> float | None:
        return None if value is None else round(100 * min(max(value / full, 0.0), 1.0), 2)

    marks = [
        Mark(part(value) or 0.0, part(a), part(b), part(other), bool(mark))
        for value, a, b, other, mark in zip_longest(values, low, high, others, marked)
    ]
    shown = f"{100 * full:g} %" if percent else f"ε = {full:g}"
    return Chart(title, "", f"{words} A full bar is {shown}.".strip(), head, tuple(rows), tuple(marks))


def _round_up(value: float) -> float:
    """Return the next larger 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 0.1
    return next(k * power for k in (1, 2, 5, 10) if k * power >= value * (1 - 1e-9))


def lines(
    title: str,
    words: str,
    head: Row,
    rows: Sequence[Row],
    *,
    drawn: Sequence[Line],
    x: str,
    y: str,
    at: Sequence[tuple[float, str]] = (),
    steps: bool = False,
    percent: bool = False,
) -> Chart:
    """Draw lines with their names at their ends, in `steps` where they jump; `at` are named places below."""
    place = {"field": "x", "type": "quantitative", "title": x, "scale": {"zero": False, "nice": False}}
    height = _number("y", y, percent=percent)
    layers: list[Spec] = []
    lower = _apart(drawn)
    for line in drawn:
        data = [{"x": a, "y": b} for a, b in line.points]
        if line.intervals is not None:
            ends = zip(line.points, line.intervals, strict=True)
            spread = [{"x": a, "low": max(low, 0.0), "high": max(high, 0.0)} for (a, _), (low, high) in ends]
            rule = {"type": "rule", "color": line.colour, "strokeWidth": 1.5, "opacity": 0.6}
            encoding = {"x": place, "y": height | {"field": "low"}, "y2": {"field": "high"}}
            layers.append({"data": {"values": spread}, "mark": rule, "encoding": encoding})
        mark: Spec = {"type": "line", "color": line.colour, "strokeWidth": 2.5}
        mark |= {"interpolate": "step-after"} if steps else {}
        mark |= {"strokeDash": [6, 4]} if line.dashed else {}
        mark |= {"point": {"filled": True, "color": line.colour, "size": 40}} if line.marked else {}
        layers.append({"data": {"values": data}, "mark": mark, "encoding": {"x": place, "y": height}})
        if line.name:
            layer = _text(place, height, {"value": line.name}, dx=8, dy=lower[line.name], color=line.colour)
            layers.append({"data": {"values": data[-1:]}, **layer})
    layers += _places(at, place)
    room = max([0, *(7 * len(line.name) for line in drawn)])
    spec = {"layer": layers, "width": _WIDTH - 70 - room, "height": 210}
    return Chart(title, _svg(spec, right=24 + room), words, head, tuple(rows))


def heat(
    title: str,
    words: str,
    head: Row,
    rows: Sequence[Row],
    *,
    across: Sequence[str],
    up: Sequence[str],
    panels: Sequence[tuple[str, Sequence[Sequence[float]]]],
) -> Chart:
    """Draw tables of fractions side by side, darker where more is; rows are `up`, columns `across`."""
    most = max(max(max(row) for row in table) for _, table in panels) or 1.0
    drawn = []
    for k, (name, table) in enumerate(panels):
        data = [
            {"x": j, "name": i, "part": value / most} for i, row in enumerate(table) for j, value in enumerate(row)
        ]
        labels = {**_AXIS, **_labels(across, 100), "labelAngle": -45}
        encoding = {
            "x": {"field": "x", "type": "ordinal", "title": None, "axis": labels},
            "y": _names(up, shown=k == 0),
            "opacity": {"field": "part", "type": "quantitative", "scale": None, "legend": None},
        }
        mark = {"type": "rect", "color": BLUE, "stroke": LINE, "strokeWidth": 0.5}
        heading = {"text": name, "color": QUIET, "fontWeight": "normal", "fontSize": 13}
        heading |= {"anchor": "start", "frame": "group"}
        size = {"width": (_WIDTH - _NAMES) / 2 - 4, "height": {"step": 22}}
        drawn.append({"data": {"values": data}, "mark": mark, "encoding": encoding, "title": heading, **size})
    return Chart(title, _svg({"hconcat": drawn, "spacing": 8}, right=8), words, head, tuple(rows))


# Parts of a specification


def _names(names: Sequence[str], room: int = _NAMES, *, shown: bool = True) -> Spec:
    """Return a vertical axis with one line per name. Its values are indices, since names may be equal."""
    axis = {**_AXIS, **_labels(names, room)} if shown else None
    return {"field": "name", "type": "ordinal", "sort": None, "title": None, "axis": axis}


def _number(field: str, title: str, *, percent: bool) -> Spec:
    axis = {"tickCount": 5, **({"format": "~%"} if percent else {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"domainMin": 0}, "axis": axis}


def _text(x: Spec, y: Spec, text: Spec, *, align: str = "left", **mark: Any) -> Spec:
    return {"mark": {"type": "text", "align": align, **mark}, "encoding": {"x": x, "y": y, "text": text}}


def _apart(drawn: Sequence[Line]) -> dict[str, float]:
    """Return by how many pixels the name of each line is lowered so that names do not overlap."""
    height = max(b for line in drawn for _, b in line.points) or 1.0
    found: dict[str, float] = {}
    last = -math.inf
    for line in sorted(drawn, key=lambda line: -line.points[-1][1]):
        place = 210 * (1 - line.points[-1][1] / height)
        found[line.name] = max(last + 16 - place, 0.0)
        last = place + found[line.name]
    return found


def _places(at: Sequence[tuple[float, str]], place: Spec) -> list[Spec]:
    if not at:
        return []
    named = {"values": [{"x": where, "text": text} for where, text in at]}
    x = {**place, "field": "x"}
    rule = {"type": "rule", "color": ORANGE, "strokeDash": [4, 3], "strokeWidth": 1.5}
    text = _text(x, {"value": 2}, {"field": "text"}, dx=5, baseline="top", color=ORANGE)
    return [{"data": named, "mark": rule, "encoding": {"x": x}}, {"data": named, **text}]


def _labels(names: Sequence[str], room: int) -> Spec:
    """Return the names as an array of Vega's expression language, and the pixels that each may take."""
    array = msgspec.json.encode([_fitting(name, room) for name in names]).decode()
    return {"labelExpr": f"{array}[datum.value]", "labelLimit": room}


def _fitting(name: str, room: int) -> str:
    """Cut a name that has characters beyond the basic plane. Vega would cut it between surrogates and fail.

    >>> _fitting("a long name that has no emoji", 60), _fitting("emoji 😀 and more", 130)
    ('a long name that has no emoji', 'emoji 😀 …')
    """
    if name.isascii() or max(map(ord, name)) <= 0xFFFF:
        return name
    widths = list(accumulate(18 if ord(letter) > 0xFFFF else 13 for letter in name))
    return name if widths[-1] <= room else f"{name[: bisect_right(widths, room - 13)]}…"


def _svg(spec: Spec, *, right: int = 40, top: int = 8) -> str:
    import vl_convert  # an extra

    text = {"labelColor": INK, "titleColor": QUIET, "labelFontSize": 12.5, "titleFontSize": 12.5}
    text |= {"titleFontWeight": "normal"}
    config = {
        "background": None,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**text, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE},
        "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "start", "titleX": 0, "titleY": -12},
        "text": {"fontSize": 12.5},
    }
    drawn: str = vl_convert.vegalite_to_svg(
        {**spec, "config": config, "padding": {"left": 12, "right": right, "top": top, "bottom": 6}}
    )
    # Screen readers get the description and the table instead of labels of each mark.
    drawn = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", drawn)
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)

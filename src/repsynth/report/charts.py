"""The report's charts: Vega-Lite specifications, drawn once to SVG, so that the page holds pictures, no program.

Colours are names of the page's own (CSS variables, from `evaluation.palette`), so that one picture serves light,
dark and paper. Every chart comes with words for those who cannot see it and with its numbers as a table.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

INK, QUIET, LINE, SHADE = "var(--ink)", "var(--quiet)", "var(--line)", "var(--shade)"
BLUE, ORANGE = "var(--blue)", "var(--orange)"

_WIDTH = 420
"""Pixels. A page of 36 rem makes it a third larger, a phone a sixth smaller: letters stay legible on both."""

_NAMES = 130  # pixels for the names of bars
_AXIS: dict[str, Any] = {"ticks": False, "domain": False, "labelPadding": 6}

Row = tuple[str, ...]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A picture, what it shows in words, and its numbers."""

    title: str
    svg: str
    words: str
    head: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Line:
    """A line of a chart with its name and, where there are some, an interval at each point."""

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
    names: Sequence[str],
    values: Sequence[float],
    axis: str,
    errors: Sequence[float] | None = None,
    marked: Sequence[bool] | None = None,
    percent: bool = True,
) -> Chart:
    """Horizontal bars with their numbers behind them, in the given order; `errors` draws intervals, and `marked`
    bars have the other colour."""
    texts = [row[1] for row in rows]
    spread = errors or [0.0] * len(values)
    data = [
        {"name": i, "value": v, "text": t, "low": max(v - e, 0.0), "high": v + e, "marked": bool(m)}
        for i, (v, t, e, m) in enumerate(zip(values, texts, spread, marked or [False] * len(names), strict=True))
    ]
    y = _names(names)
    x = {
        "field": "value",
        "type": "quantitative",
        "title": axis,
        "scale": {"domainMin": 0},
        "axis": _ticks(percent),
    }
    colour = {"condition": {"test": "datum.marked", "value": ORANGE}, "value": BLUE}
    layers: list[Spec] = [
        {"mark": {"type": "bar", "height": {"band": 0.62}}, "encoding": {"x": x, "y": y, "color": colour}}
    ]
    if errors is not None:
        layers.append(_rule("low", "high", y))
    place = {"x": {"field": "high", "type": "quantitative"}, "y": y, "text": {"field": "text"}}
    layers.append({"mark": {"type": "text", "align": "left", "dx": 6, "color": INK}, "encoding": place})
    spec = {"data": {"values": data}, "layer": layers, "width": _WIDTH - _NAMES - 90, "height": {"step": 26}}
    return Chart(title, _svg(spec, right=90), words, head, tuple(rows))


def dots(
    title: str,
    words: str,
    head: Row,
    rows: Sequence[Row],
    *,
    names: Sequence[str],
    values: Sequence[float],
    others: Sequence[float] | None = None,
    called: tuple[str, str] = ("", ""),
    low: Sequence[float],
    high: Sequence[float],
    axis: str,
    at: tuple[float, str] | None = None,
    room: int = _NAMES,
) -> Chart:
    """A dot for each name, with its interval, and beside it a diamond for what it is compared with; both are named
    above the first. `at` is a named place on the axis, `room` the width of the names. Numbers are parts of a
    whole."""
    data = [
        {"name": i, "value": v, "low": max(a, 0.0), "high": b, "other": o}
        for i, (v, a, b, o) in enumerate(zip(values, low, high, others or values, strict=True))
    ]
    y = _names(names, room)
    x = {"field": "value", "type": "quantitative", "title": axis, "axis": _ticks(True), "scale": {"domainMin": 0}}
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "color": LINE, "strokeWidth": 7, "strokeCap": "round"},
            "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "color": BLUE, "opacity": 1},
            "encoding": {"x": x, "y": y},
        },
    ]
    if others is not None:
        diamond = {"type": "point", "filled": True, "size": 70, "color": ORANGE, "shape": "diamond", "opacity": 1}
        layers.append({"mark": diamond, "encoding": {"x": x | {"field": "other"}, "y": y}})
        first = data[0]
        left, right = sorted(
            (("value", BLUE, called[0]), ("other", ORANGE, called[1])), key=lambda it: first[it[0]]
        )
        for (field, colour, text), align in ((left, "right"), (right, "left")):
            mark = {"type": "text", "dx": -4 if align == "right" else 4, "dy": -14, "align": align}
            mark |= {"color": colour, "text": text}
            layers.append(
                {"data": {"values": [first]}, "mark": mark, "encoding": {"x": x | {"field": field}, "y": y}}
            )
    if at is not None:
        layers += _places([at], x, below=True)
    spec = {"data": {"values": data}, "layer": layers, "width": _WIDTH - room - 30, "height": {"step": 22}}
    return Chart(title, _svg(spec, right=40, top=16), words, head, tuple(rows))


def curve(
    title: str,
    words: str,
    head: Row,
    rows: Sequence[Row],
    *,
    points: Sequence[tuple[float, float]],
    x: str,
    y: str,
    at: Sequence[tuple[float, str]] = (),
    steps: bool = False,
    percent: bool = False,
) -> Chart:
    """A line, with named places on the horizontal axis; in `steps` where it jumps."""
    return lines(
        title, words, head, rows, drawn=[Line("", points)], x=x, y=y, at=at, steps=steps, percent=percent
    )  # fmt: skip


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
    """Lines, each with its name at its end, where it has one."""
    place = {"field": "x", "type": "quantitative", "title": x, "scale": {"zero": False, "nice": False}}
    height = {"field": "y", "type": "quantitative", "title": y, "scale": {"domainMin": 0}, "axis": _ticks(percent)}
    layers: list[Spec] = []
    lower = _apart(drawn)
    for line in drawn:
        data = [{"x": a, "y": b} for a, b in line.points]
        if line.intervals is not None:
            spread = [
                {"x": a, "low": lo, "high": hi}
                for (a, _), (lo, hi) in zip(line.points, line.intervals, strict=True)
            ]
            rule = {"type": "rule", "color": line.colour, "strokeWidth": 1.5, "opacity": 0.6}
            encoding = {"x": place, "y": height | {"field": "low"}, "y2": {"field": "high"}}
            layers.append({"data": {"values": spread}, "mark": rule, "encoding": encoding})
        mark: Spec = {"type": "line", "color": line.colour, "strokeWidth": 2.5}
        mark |= {"interpolate": "step-after"} if steps else {}
        mark |= {"strokeDash": [6, 4]} if line.dashed else {}
        mark |= {"point": {"filled": True, "color": line.colour, "size": 40}} if line.marked else {}
        layers.append({"data": {"values": data}, "mark": mark, "encoding": {"x": place, "y": height}})
        if line.name:
            text = {"type": "text", "align": "left", "dx": 8, "dy": lower[line.name], "color": line.colour}
            text |= {"text": line.name}
            layers.append({"data": {"values": data[-1:]}, "mark": text, "encoding": {"x": place, "y": height}})
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
    """Tables side by side, darker where more of the whole lies; their rows are `up`, their columns `across`."""
    most = max(max(max(row) for row in table) for _, table in panels) or 1.0
    drawn = []
    for k, (name, table) in enumerate(panels):
        data = [
            {"x": j, "name": i, "part": value / most} for i, row in enumerate(table) for j, value in enumerate(row)
        ]
        labels = {**_AXIS, **_labels(across, 100), "labelAngle": -45}
        x = {"field": "x", "type": "ordinal", "title": None, "axis": labels}
        y = _names(up, shown=k == 0)
        encoding = {
            "x": x, "y": y, "opacity": {"field": "part", "type": "quantitative", "scale": None, "legend": None}
        }  # fmt: skip
        mark = {"type": "rect", "color": BLUE, "stroke": LINE, "strokeWidth": 0.5}
        heading = {
            "text": name,
            "color": QUIET,
            "fontWeight": "normal",
            "fontSize": 13,
            "anchor": "start",
            "frame": "group",
        }
        size = {"width": (_WIDTH - _NAMES) / 2 - 4, "height": {"step": 22}}
        drawn.append({"data": {"values": data}, "mark": mark, "encoding": encoding, "title": heading, **size})
    return Chart(title, _svg({"hconcat": drawn, "spacing": 8}, right=8), words, head, tuple(rows))


# Parts of a specification


def _names(names: Sequence[str], room: int = _NAMES, *, shown: bool = True) -> Spec:
    """The vertical axis of a chart that has a line for each name. What is drawn there is a number: two names may
    be equal."""
    axis = {**_AXIS, **_labels(names, room)} if shown else None
    return {"field": "name", "type": "ordinal", "sort": None, "title": None, "axis": axis}


def _ticks(percent: bool) -> Spec:
    return {"tickCount": 5, **({"format": "~%"} if percent else {})}


def _apart(drawn: Sequence[Line]) -> dict[str, float]:
    """By how many pixels the name of each line is lowered, so that none is written over another."""
    height = max(b for line in drawn for _, b in line.points) or 1.0
    found: dict[str, float] = {}
    last = -math.inf
    for line in sorted(drawn, key=lambda line: -line.points[-1][1]):
        place = 210 * (1 - line.points[-1][1] / height)
        found[line.name] = max(last + 16 - place, 0.0)
        last = place + found[line.name]
    return found


def _rule(low: str, high: str, y: Spec) -> Spec:
    encoding = {"x": {"field": low, "type": "quantitative"}, "x2": {"field": high}, "y": y}
    return {"mark": {"type": "rule", "color": INK, "strokeWidth": 1.5}, "encoding": encoding}


def _places(at: Sequence[tuple[float, str]], place: Spec, *, below: bool = False) -> list[Spec]:
    if not at:
        return []
    named = {"values": [{"x": where, "text": text} for where, text in at]}
    x = {**place, "field": "x"}
    rule = {"type": "rule", "color": ORANGE, "strokeDash": [4, 3], "strokeWidth": 1.5}
    text = {"type": "text", "align": "left", "dx": 5, "baseline": "top", "color": ORANGE}
    height = {"value": {"expr": "height - 14"}} if below else {"value": 2}
    return [
        {"data": named, "mark": rule, "encoding": {"x": x}},
        {"data": named, "mark": text, "encoding": {"x": x, "y": height, "text": {"field": "text"}}},
    ]


def _labels(names: Sequence[str], room: int) -> Spec:
    """The names, as an array of the chart's own language, and the pixels that each may take."""
    array = msgspec.json.encode([_fitting(name, room) for name in names]).decode()
    return {"labelExpr": f"{array}[datum.value]", "labelLimit": room}


def _fitting(name: str, room: int) -> str:
    """What is too long is cut when it is drawn, but between the halves of an emoji, too, which then ends the
    drawing. So a name with one is cut here, where each letter is taken for as wide as any.

    >>> _fitting("a long name that has no emoji", 60), _fitting("emoji 😀 and more", 130)
    ('a long name that has no emoji', 'emoji 😀 …')
    """
    if name.isascii() or max(map(ord, name)) <= 0xFFFF:
        return name
    widths = list(accumulate(18 if ord(letter) > 0xFFFF else 13 for letter in name))
    return name if widths[-1] <= room else f"{name[: bisect_right(widths, room - 13)]}…"


def _svg(spec: Spec, *, right: int = 40, top: int = 8) -> str:
    import vl_convert  # an extra

    text = {
        "labelColor": INK,
        "titleColor": QUIET,
        "labelFontSize": 12.5,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
    }
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
    # Screen readers get the words and the table instead, so what would be read of each mark goes; the picture
    # grows with the page.
    drawn = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", drawn)
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)

"""The report's charts: Vega-Lite specifications, drawn once to SVG, so that the page holds pictures, no program.

Colours are names of the page's own (CSS variables), so that one picture serves light, dark and paper. Every chart
comes with words for those who cannot see it and with its numbers as a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INK, QUIET, LINE = "var(--ink)", "var(--quiet)", "var(--line)"
BLUE, ORANGE = "var(--blue)", "var(--orange)"
"""Okabe and Ito's, which the colour-blind can tell apart; the page has a lighter pair of them for the dark."""

_WIDTH = 560


@dataclass(frozen=True)
class Chart:
    """A picture, what it shows in words, and its numbers."""

    title: str
    svg: str
    words: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def bars(
    title: str,
    words: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    names: Sequence[str],
    values: Sequence[float],
    axis: str,
    errors: Sequence[float] | None = None,
    marked: Sequence[bool] | None = None,
) -> Chart:
    """Horizontal bars with their numbers behind them, in the given order; `errors` draws intervals, and `marked`
    bars have the other colour."""
    texts = [row[1] for row in rows]
    low = [v - e for v, e in zip(values, errors or [0.0] * len(values), strict=True)]
    high = [v + e for v, e in zip(values, errors or [0.0] * len(values), strict=True)]
    data = [
        {"name": f"{i:04d}", "label": n, "value": v, "text": t, "low": max(a, 0.0), "high": b, "marked": bool(m)}
        for i, (n, v, t, a, b, m) in enumerate(
            zip(names, values, texts, low, high, marked or [False] * len(names), strict=True)
        )
    ]
    y = {
        "field": "name",
        "type": "ordinal",
        "sort": None,
        "title": None,
        "axis": {
            "labelExpr": f"{_lookup(names)}[toNumber(datum.value)]",
            "labelLimit": 220,
            "ticks": False,
            "domain": False,
        },
    }
    x = {"field": "value", "type": "quantitative", "title": axis, "scale": {"domainMin": 0}}
    colour = {"condition": {"test": "datum.marked", "value": ORANGE}, "value": BLUE}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "bar", "height": {"band": 0.62}}, "encoding": {"x": x, "y": y, "color": colour}}
    ]
    if errors is not None:
        layers.append(
            {
                "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y},
            }
        )
    layers.append(
        {
            "mark": {"type": "text", "align": "left", "dx": 6, "color": INK},
            "encoding": {
                "x": {"field": "high", "type": "quantitative"},
                "y": y,
                "text": {"field": "text"},
            },
        }
    )
    spec = {"data": {"values": data}, "layer": layers, "width": _WIDTH - 220, "height": {"step": 26}}
    return Chart(title, _svg(spec), words, head, tuple(rows))


def curve(
    title: str,
    words: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    points: Sequence[tuple[float, float]],
    x: str,
    y: str,
    at: Sequence[tuple[float, str]] = (),
    steps: bool = False,
) -> Chart:
    """A line, with named places on the horizontal axis; in `steps` where it jumps."""
    data = [{"x": a, "y": b} for a, b in points]
    place = {"field": "x", "type": "quantitative", "title": x, "scale": {"zero": False, "nice": False}}
    height = {"field": "y", "type": "quantitative", "title": y, "scale": {"domainMin": 0}}
    line = {"type": "line", "color": BLUE, "strokeWidth": 2.5, "interpolate": "step-after" if steps else "linear"}
    layers: list[dict[str, Any]] = [
        {"data": {"values": data}, "mark": line, "encoding": {"x": place, "y": height}}
    ]
    if at:
        named = [{"x": where, "text": text} for where, text in at]
        rule = {"type": "rule", "color": ORANGE, "strokeDash": [4, 3], "strokeWidth": 1.5}
        text = {"type": "text", "align": "left", "dx": 5, "baseline": "top", "color": ORANGE}
        layers += [
            {"data": {"values": named}, "mark": rule, "encoding": {"x": place}},
            {
                "data": {"values": named},
                "mark": text,
                "encoding": {"x": place, "y": {"value": 2}, "text": {"field": "text"}},
            },
        ]
    spec = {"layer": layers, "width": _WIDTH - 80, "height": 220}
    return Chart(title, _svg(spec), words, head, tuple(rows))


def _lookup(names: Sequence[str]) -> str:
    """The names as an array of the chart's own language."""
    import msgspec

    return msgspec.json.encode(list(names)).decode()


def _svg(spec: dict[str, Any]) -> str:
    import vl_convert  # an extra

    text = {
        "labelColor": INK,
        "titleColor": QUIET,
        "labelFontSize": 13,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
    }
    config = {
        "background": None,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**text, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE},
        "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "start", "titleX": 0, "titleY": -12},
        "text": {"fontSize": 13},
    }
    drawn: str = vl_convert.vegalite_to_svg(
        {**spec, "config": config, "padding": {"left": 16, "right": 40, "top": 8, "bottom": 6}}
    )
    # Screen readers get the words and the table instead; the picture grows with the page.
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)

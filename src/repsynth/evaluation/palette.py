"""The project's colours, the same in figures, pages and docs.

They are Okabe and Ito's, which the colour-blind can tell apart, with a vermillion that is dark enough for words on
white. Real records, uniform weights and what holds for anybody are blue; synthetic records, REPS and outliers are
orange. Where more than two things are drawn they differ in shape, too.
"""

INK, QUIET, LINE, PAPER, SHADE = "#1d2329", "#55606b", "#d9dee3", "#ffffff", "#f3f6f8"
BLUE, ORANGE = "#0072b2", "#b34a00"
ALARM = "#a4161a"

LIGHT = {
    "ink": INK, "quiet": QUIET, "line": LINE, "paper": PAPER, "shade": SHADE, "blue": BLUE, "orange": ORANGE,
    "alarm": ALARM,
}  # fmt: skip
"""A page's colours by name."""

DARK = {
    "ink": "#e8ecef", "quiet": "#a9b4be", "line": "#39434c", "paper": "#14191d", "shade": "#1d242a",
    "blue": "#56b4e9", "orange": "#f0a04b", "alarm": "#ff8a80",
}  # fmt: skip
"""The same at night."""

_PRINTED = LIGHT | {"ink": "#000000", "quiet": "#444444", "line": "#cccccc"}


def colours_of_page() -> str:
    """The colours as CSS variables: for the light, for the dark and for paper.

    >>> colours_of_page().splitlines()[0][:39]
    ':root { color-scheme: light dark; --ink'
    """

    def variables(colours: dict[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in colours.items())

    return (
        f":root {{ color-scheme: light dark; {variables(LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n"
        f"@media print {{ :root {{ color-scheme: light; {variables(_PRINTED)} }} }}\n"
    )

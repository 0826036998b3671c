"""The README's pictures: bounds by epsilon, and screenshots of the explorer and the report.

Without flags it writes docs/protection.svg and docs/protection-dark.svg. With `--screens` it also writes
docs/explorer.png and docs/report.png; that needs Chromium.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from repsynth import datasets, plan
from repsynth.cli import main as repsynth
from repsynth.privacy.formatting import upper
from repsynth.schema import parse_schema

EPSILONS = (0.5, 1.0, 2.0, 4.0)
OUTLIER_WEIGHT = 0.2
LIGHT = {"paper": "#ffffff", "ink": "#1d2329", "quiet": "#55606b", "everyone": "#0072b2", "outliers": "#b34a00"}
DARK = {"paper": "#0d1117", "ink": "#e6edf3", "quiet": "#9aa7b4", "everyone": "#58a6e0", "outliers": "#f0883e"}


def outlier_bounds() -> dict[float, str]:
    """Return the bound of an outlier of the demo's table by epsilon, rounded up."""
    schema = parse_schema(datasets.schema_text("people"))
    plans = {epsilon: plan(schema, epsilon=epsilon, delta=1e-6) for epsilon in EPSILONS}
    return {
        epsilon: upper(float(made.loss.epsilon_at(OUTLIER_WEIGHT, made.delta)), 3)
        for epsilon, made in plans.items()
    }


def picture(bounds: dict[float, str], colours: dict[str, str]) -> str:
    """Return an SVG with two bars for each epsilon. Its text is readable at the width of a phone."""
    bottom, height, width = 262, 150, 46
    scale = height / max(bounds)
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 310" font-family="Helvetica, Arial, sans-serif"'
        ' font-size="16">',
        "<title>What one person can lose at most, by the ε that you choose: outliers about a third</title>",
        f'<rect width="480" height="310" fill="{colours["paper"]}"/>',
        f'<text x="20" y="30" font-size="19" font-weight="bold" fill="{colours["ink"]}">'
        "What one person can lose at most (ε)</text>",
    ]
    for x, name in ((20, "everyone"), (140, "outliers")):
        lines.append(f'<rect x="{x}" y="46" width="16" height="16" rx="3" fill="{colours[name]}"/>')
        lines.append(f'<text x="{x + 24}" y="60" fill="{colours["ink"]}">{name}</text>')
    for place, (epsilon, bound) in enumerate(bounds.items()):
        left = 24 + 112 * place
        for x, name, text in ((left, "everyone", f"{epsilon:g}"), (left + width + 4, "outliers", bound)):
            top = bottom - scale * float(text)
            lines.append(
                f'<rect x="{x}" y="{top:.1f}" width="{width}" height="{bottom - top:.1f}" fill="{colours[name]}"/>'
            )
            lines.append(
                f'<text x="{x + width / 2:g}" y="{top - 6:.1f}" text-anchor="middle" font-weight="bold"'
                f' fill="{colours[name]}">{text}</text>'
            )
        lines.append(
            f'<text x="{left + width + 2}" y="{bottom + 22}" text-anchor="middle" fill="{colours["ink"]}">'
            f"ε = {epsilon:g}</text>"
        )
    lines.append(f'<line x1="20" y1="{bottom}" x2="460" y2="{bottom}" stroke="{colours["quiet"]}"/>')
    lines.append(
        f'<text x="240" y="304" text-anchor="middle" font-size="14" fill="{colours["quiet"]}">'
        "privacy budget that you choose; smaller is more private</text>"
    )
    return "\n".join([*lines, "</svg>", ""])


def screenshot(page: Path, target: Path, chromium: str) -> None:
    """Write the top of a page as a PNG of at most 256 colours."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder, "page.png")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,860"]
        subprocess.run(
            [chromium, *flags, f"--user-data-dir={folder}/profile", "--virtual-time-budget=4000",
             f"--screenshot={large}", page.as_uri()],
            check=True, capture_output=True,
        )  # fmt: skip
        with Image.open(large) as image:
            image.convert("RGB").quantize(256).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs"), help="folder (default: docs)")
    parser.add_argument("--screens", action="store_true", help="also take the screenshots")
    parser.add_argument("--chromium", default="chromium", help="command of Chromium")
    arguments = parser.parse_args()
    bounds = outlier_bounds()
    for name, colours in (("protection", LIGHT), ("protection-dark", DARK)):
        (arguments.output / f"{name}.svg").write_text(picture(bounds, colours), encoding="utf-8")
    if arguments.screens:
        with tempfile.TemporaryDirectory() as folder:
            demo = Path(folder, "demo")
            explorer, report = Path(folder, "explorer.html"), Path(folder, "report.html")
            repsynth(["demo", "-o", str(demo)])
            repsynth(["explore", "--release", str(demo / "release"), "-o", str(explorer)])
            repsynth(["report", str(demo / "release"), "-o", str(report)])
            screenshot(explorer, arguments.output / "explorer.png", arguments.chromium)
            screenshot(report, arguments.output / "report.png", arguments.chromium)


if __name__ == "__main__":
    main()

"""Write an evaluation to a folder: a summary in Markdown and all numbers in JSON.

Every name begins with "private-", since the files are computed from the training data.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from repsynth.errors import ConfigError, DataError, shown
from repsynth.evaluation.measures import Measure, show
from repsynth.release.store import check_private
from repsynth.storage import check_place, hidden

if TYPE_CHECKING:  # these need scikit-learn, which `evaluate` on a release alone does not
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.evaluation.subgroups import Subgroup
    from repsynth.release.accuracy import Expected

MEASURE_HEADERS = ("measure", "value", "best", "two real halves", "independent columns", "in words")
GROUP_HEADERS = ("subgroup", "rows", "real", "synthetic", "extra loss", "")


def check_folder(folder: Path) -> None:
    """Refuse a folder that exists or cannot be made."""
    check_place(folder)
    if os.path.lexists(folder):
        raise ConfigError(f"{shown(folder)}: already exists; choose another folder with -o")


def write_evaluation(evaluation: "Evaluation", folder: Path) -> list[str]:
    """Write the whole folder or, on any error, nothing; return the names of the files."""
    check_private(folder)
    check_folder(folder)
    temporary = hidden(folder)
    try:
        temporary.mkdir(0o700)
        (temporary / "private-summary.md").write_text(evaluation_markdown(evaluation), encoding="utf-8")
        (temporary / "private-evaluation.json").write_bytes(_json(evaluation))
        os.rename(temporary, folder)
    except OSError as error:
        raise DataError(
            f"{shown(folder)}: cannot be written ({error.strerror}); nothing was left behind"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path.name for path in folder.iterdir())


def _json(evaluation: "Evaluation") -> bytes:
    return msgspec.json.format(msgspec.json.encode(evaluation_data(evaluation))) + b"\n"


def evaluation_data(found: "Evaluation | Expected") -> dict[str, Any]:
    """Return an evaluation, or what follows from a release alone, as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(found, enc_hook=lambda value: value.tolist())
    for data, measure in zip(plain.get("measures", ()), getattr(found, "measures", ()), strict=True):
        data |= {"line": measure.line, "words": measure.words}
    return plain


def evaluation_markdown(evaluation: "Evaluation") -> str:
    rows = ", ".join(f"{count:,} {name}" for name, count in evaluation.rows.items())
    lines = [
        "# What the synthetic table is good for",
        "",
        f"**{evaluation.stamp}**",
        "",
        *([f"Compared with {evaluation.compared_with}.", ""] if evaluation.compared_with else []),
        f"Rows: {rows}. Label: {evaluation.label or 'none'}.",
        "",
        *(f"- **Note:** {warning}." for warning in evaluation.warnings),
        "",
        *_markdown(MEASURE_HEADERS, map(measure_row, evaluation.measures)),
        "",
    ]
    if evaluation.left_out:
        lines += ["Left out:", "", *(f"- {name}: {why}." for name, why in evaluation.left_out.items()), ""]
    lines += ["## What each number is, and what it is made of", ""]
    for measure in evaluation.measures:
        worst = ", ".join(f"{name} {show(value)}" for name, value in measure.worst().items())
        note = f" ({measure.note})" if measure.note else ""
        lines.append(f"- **{measure.name}**: {measure.what}{note}. {measure.line}.")
        if worst:
            lines.append(f"  Farthest from the best: {worst}.")
    for title, groups in (("By outlier decile", evaluation.deciles), ("By subgroup", evaluation.subgroups)):
        if groups:
            lines += ["", f"## {title}", "", *_markdown(GROUP_HEADERS, map(group_row, groups))]
    return "\n".join(lines) + "\n"


def measure_row(measure: Measure) -> tuple[str, ...]:
    """Return a measure as text, in the order of `MEASURE_HEADERS`."""
    numbers = (measure.value, measure.best, measure.floor, measure.independent)
    return (measure.name, *("" if number is None else show(number) for number in numbers), measure.words)


def group_row(group: "Subgroup") -> tuple[str, ...]:
    """Return a subgroup as text, in the order of `GROUP_HEADERS`."""
    extra = "" if group.extra is None else f"{group.extra:+.3f} ± {group.shown_error}"
    marks = [word for word, true in (("pays more", group.pays_more), ("too few", group.too_few)) if true]
    fractions = (f"{100 * fraction:.1f} %" for fraction in (group.fraction_real, group.fraction_synthetic))
    return (group.name, f"{group.records:,}", *fractions, extra, " ".join(marks))


def _markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [[text.replace("|", "\\|") for text in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(headers, *cells, strict=True)]
    lines = [headers, ["-" * max(width, 3) for width in widths], *cells]
    return [
        "| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |" for line in lines
    ]

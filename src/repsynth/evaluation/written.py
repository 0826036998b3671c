"""The folder of an evaluation: a summary, all numbers and matrices, whole or not at all.

Every name begins with "private-": the files were computed from the training data. What follows from a release
alone is public, and its files are not called so.
"""

import csv
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from repsynth.data.write import takes_apostrophe
from repsynth.errors import ConfigError, DataError, shown
from repsynth.evaluation.measures import Measure, show
from repsynth.privacy.shown import at_least, at_most, fixed_at_most
from repsynth.release.expected import Expected, Shares, Z
from repsynth.release.folder import check_private
from repsynth.storage.atomic import check_place, hidden

if TYPE_CHECKING:  # it needs scikit-learn, which what follows from a release alone does not
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.evaluation.subgroups import Subgroup

PREFIX = "private-"

_MOST_ROWS = 40


def check_folder(folder: Path) -> None:
    """Refuse a folder that is there already, or that cannot be made."""
    check_place(folder)
    if os.path.lexists(folder):
        raise ConfigError(f"{shown(folder)}: already exists; choose another folder with -o")


@contextmanager
def folder_beside(folder: Path, *, private: bool) -> Iterator[Path]:
    """A temporary folder that becomes `folder` at the end, or disappears on any error."""
    check_folder(folder)
    temporary = hidden(folder)
    try:
        temporary.mkdir(0o700 if private else 0o777)
    except OSError as error:
        raise DataError(f"{shown(folder)}: cannot be made ({error.strerror})") from None
    try:
        yield temporary
        os.rename(temporary, folder)
    except OSError as error:
        raise DataError(
            f"{shown(folder)}: cannot be written ({error.strerror}); nothing was left behind"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_evaluation(evaluation: "Evaluation", folder: Path) -> list[str]:
    """Write everything; the names of the files."""
    check_private(folder)
    with folder_beside(folder, private=True) as place:
        (place / f"{PREFIX}summary.md").write_text(evaluation_markdown(evaluation), encoding="utf-8")
        (place / f"{PREFIX}evaluation.json").write_bytes(_json(evaluation))
        for name, rows in _tables(evaluation).items():
            with (place / f"{PREFIX}{name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([_safe(cell) for cell in row] for row in rows)
        return sorted(path.name for path in place.iterdir())


def write_expected(expected: Expected, folder: Path) -> list[str]:
    """Write what follows from a release alone; the names of the files."""
    with folder_beside(folder, private=False) as place:
        (place / "expected-errors.md").write_text("\n".join(_expected_lines(expected)) + "\n", encoding="utf-8")
        (place / "expected-errors.json").write_bytes(_json(expected))
        return sorted(path.name for path in place.iterdir())


def _json(found: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(evaluation_data(found))) + b"\n"


def evaluation_data(found: "Evaluation | Expected") -> dict[str, Any]:
    """An evaluation, or what follows from a release, as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(found, enc_hook=lambda value: value.tolist())
    if not isinstance(found, Expected):
        lines = {m.name: {"line": m.line, "words": m.words} for m in found.measures}
        plain["measures"] = [measure | lines[measure["name"]] for measure in plain["measures"]]
    return plain


def _safe(cell: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe: a schema may come from somebody else."""
    return f"'{cell}" if isinstance(cell, str) and takes_apostrophe([cell])[0] else cell


def _tables(evaluation: "Evaluation") -> dict[str, list[Sequence[Any]]]:
    found: dict[str, list[Sequence[Any]]] = {}
    for kind, associations in evaluation.associations.items():
        header = ["PRIVATE", *associations.names]
        rows = zip(associations.names, associations.matrix.tolist(), strict=True)
        found[f"associations-{kind}"] = [header, *([name, *row] for name, row in rows)]
    names = list(evaluation["one-way distance"].breakdown)
    distances = {**evaluation["one-way distance"].breakdown}
    for measure in evaluation.measures:
        if measure.name == "two-way distance":
            distances |= measure.breakdown
    found["distances"] = [
        ["PRIVATE", *names],
        *([a, *(distances.get(a if a == b else f"{a} × {b}", distances.get(f"{b} × {a}")) for b in names)]
          for a in names),
    ]  # fmt: skip
    groups = [*evaluation.subgroups, *evaluation.deciles]
    every = groups[0].__struct_fields__ if groups else ()
    fields = [field for field in every if any(getattr(g, field) is not None for g in groups)]
    found["subgroups"] = [["PRIVATE", *fields], *(["", *(getattr(g, field) for field in fields)] for g in groups)]
    if evaluation.coefficients:
        found["coefficients"] = [
            ["PRIVATE", "real", "standard error", "synthetic", "standard error", "overlap"],
            *([c.term, c.real, c.real_standard_error, c.synthetic, c.synthetic_standard_error, c.overlap]
              for c in evaluation.coefficients),
        ]  # fmt: skip
    return found


# Markdown


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
        *_markdown(
            ("measure", "value", "best", "two real halves", "independent columns", "in words"),
            ((m.name, *numbers_of_measure(m), m.words) for m in evaluation.measures),
        ),
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
            lines += ["", f"## {title}", "", *_group_table(groups)]
    if evaluation.expected:
        lines += ["", *_expected_lines(evaluation.expected, level="##")]
    return "\n".join(lines) + "\n"


def numbers_of_measure(measure: Measure) -> tuple[str, str, str, str]:
    """Value, best, floor and independent columns as text."""
    others = ("" if value is None else show(value) for value in (measure.floor, measure.independent))
    floor, independent = others
    return show(measure.value), show(measure.best), floor, independent


GROUP_HEADERS = ("subgroup", "rows", "real", "synthetic", "AUROC real", "AUROC synthetic", "extra loss", "")


def group_row(group: "Subgroup") -> tuple[str, ...]:
    """A subgroup in the order of `GROUP_HEADERS`."""
    extra = "" if group.extra is None else f"{group.extra:+.3f} ± {group.shown_error}"
    mark = " ".join(
        word for word, true in (("pays more", group.pays_more), ("too few", group.too_few)) if true
    )  # fmt: skip
    areas = ("" if area is None else f"{area:.3f}" for area in (group.auroc_real, group.auroc_synthetic))
    fractions = (f"{100 * fraction:.1f} %" for fraction in (group.fraction_real, group.fraction_synthetic))
    return (group.name, f"{group.records:,}", *fractions, *areas, extra, mark)


def _group_table(groups: Sequence["Subgroup"]) -> list[str]:
    return _markdown(GROUP_HEADERS, (group_row(group) for group in groups))


def _expected_lines(expected: Expected, level: str = "#") -> list[str]:
    means = {mean.column: mean for mean in expected.means}
    lines = [
        f"{level} What an analyst may rely on, from the release alone",
        "",
        "This part follows from released values and may be published.",
        "",
        *(f"- {note}" for note in expected.notes),
        "",
    ]

    def points(standard_error: float) -> str:
        return f"± {fixed_at_most(100 * Z * standard_error, 2)}"

    def row(shares: Shares) -> tuple[str, ...]:
        mean = means.get(shares.column)
        said = ("", "", "")
        if mean is not None:
            half_width = at_most(Z * mean.standard_error, 3)
            said = (f"{mean.mean:.5g}", f"± {half_width}", at_most(mean.binning, 3))
        return (shares.column, str(len(shares.bins)), points(shares.standard_error), *said)

    lines += _markdown(
        ("column", "bins", "share of a bin, points (95 %)", "mean by bins", "95 %", "binning, at most"),
        (row(shares) for shares in expected.columns),
    )
    if expected.tables:
        lines += ["", *_markdown(
            ("table", "measurement", "cells", "a cell, points (95 %)", ""),
            ((" × ".join(t.columns), t.measurement, str(t.cells), points(t.standard_error),
              "at least" if t.lower_bound else "") for t in expected.tables),
        )]  # fmt: skip
    if expected.group_means:
        lines += ["", *_markdown(
            ("mean of", "where", "mean by groups", "noise, 95 %, at least", "lies between"),
            ((m.column, m.by, f"{m.mean:.5g}", f"± {at_most(Z * m.standard_error, 3)}",
              "not known" if m.interval_95 is None
              else f"{at_least(m.interval_95[0], 5)} and {at_most(m.interval_95[1], 5)}")
             for m in expected.group_means[:_MOST_ROWS]),
        )]  # fmt: skip
    return lines


def _markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [[text.replace("|", "\\|") for text in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(headers, *cells, strict=True)]
    lines = [headers, ["-" * max(width, 3) for width in widths], *cells]
    return [
        "| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |" for line in lines
    ]

"""Write an evaluation to a folder as JSON. Its name begins with "private-": it is computed from the training data.

A measure: its value beside the best value, what two real halves give, and its parts.
"""

import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from repsynth.errors import ConfigError, DataError, shown
from repsynth.release.store import check_private
from repsynth.storage import check_place, hidden

if TYPE_CHECKING:  # these need scikit-learn, which `evaluate` on a release alone does not
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.evaluation.subgroups import Subgroup
    from repsynth.release.accuracy import Expected

STAMP = (
    "PRIVATE: computed from the training data, so not covered by the release's guarantee. For the curator only; "
    "do not publish."
)

STEPS = (
    "distances", "associations", "coverage", "logistic regression", "boosting", "coefficients", "propensity",
    "outliers", "subgroups",
)  # fmt: skip
"""The steps of an evaluation, in this order."""

_MANY = 20  # from this ratio on, the two numbers are shown instead


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of a synthetic table.

    `floor` is the value of two halves of the real table, `independent` that of the real table with each column
    shuffled; None where it is not computed. `breakdown` holds the parts by name.

    >>> near = Measure(name="two-way", what="distance", value=0.05, best=0.0, floor=0.02, independent=0.1)
    >>> near.line
    '0.050; best 0; two real halves 0.020; independent columns 0.100'
    >>> near.words
    '2.5 times as far from the best as two real halves; 50 % of the way to independent columns'
    """

    name: str
    what: str
    value: float
    best: float
    best_is: str = ""
    """What the best value is, where it depends on the table."""
    floor: float | None = None
    floor_is: str = "two real halves"
    independent: float | None = None
    breakdown: dict[str, float] = {}
    part_best: float | None = None
    """The best value of a part, where it differs from that of the whole."""
    note: str = ""
    said: str = ""
    """Overrides `words`."""

    @property
    def line(self) -> str:
        parts = [show(self.value), f"best {show(self.best)}" + (f" ({self.best_is})" if self.best_is else "")]
        if self.floor is not None:
            parts.append(f"{self.floor_is} {show(self.floor)}")
        if self.independent is not None:
            parts.append(f"independent columns {show(self.independent)}")
        return "; ".join(parts)

    def worst(self, most: int = 5) -> dict[str, float]:
        """Return the parts that are farthest from the best."""
        best = self.best if self.part_best is None else self.part_best
        known = {name: value for name, value in self.breakdown.items() if not math.isnan(value)}
        ordered = sorted(known.items(), key=lambda part: -abs(part[1] - best))
        return {name: value for name, value in ordered[:most] if abs(value - best) > 1e-12}

    @property
    def words(self) -> str:
        if self.said:
            return self.said
        gap = abs(self.value - self.best)
        parts = []
        if gap < 1e-12:
            parts.append("the best there is")
        elif self.floor is not None:
            floor = abs(self.floor - self.best)
            if gap <= floor:
                parts.append(f"as near as {self.floor_is}")
            elif gap < _MANY * floor:
                parts.append(f"{_times(gap / floor)} as far from the best as {self.floor_is}")
            else:
                parts.append(f"off the best by {show(gap)}, {self.floor_is} by {show(floor)}")
        else:
            parts.append(f"off the best by {show(gap)}")
        if self.independent is not None and abs(self.independent - self.best) > 1e-12:
            way = gap / abs(self.independent - self.best)
            better = f"{100 * way:.0f} % of the way to independent columns"
            parts.append("no better than independent columns" if way >= 1 else better)
        return "; ".join(parts)


def compared(value: float, usual: float, what: str) -> str:
    """Say whether a value is more than, equal to or less than the usual one.

    >>> compared(0.002, 0.001, "among the holdout rows"), compared(0.0, 0.001, "in the real table")
    ('2.0 times as many as among the holdout rows', 'fewer than in the real table')
    """
    if value == usual:
        return f"as many as {what}"
    if value < usual:
        return f"fewer than {what}"
    return f"{_times(value / usual)} as many as {what}" if usual > 0 else f"more than {what}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def show(value: float) -> str:
    """Format a number with three decimals, or none where it is whole or large.

    >>> show(0.0512), show(0.0), show(1.0), show(934.26), show(0.00004)
    ('0.051', '0', '1', '934', '0.00004')
    """
    if math.isnan(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) >= 0.0005 else f"{value:.1g}" if abs(value) < 1e-5 else f"{value:.5f}"


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN where there are none."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


FILE = "private-evaluation.json"
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
        (temporary / FILE).write_bytes(_json(evaluation))
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

"""Utility by subgroup and by decile of outlyingness. PRIVATE: computed from data.

Outliers weigh less in a release, so a synthetic table may be less accurate for minorities and unusual people. The
loss of a classifier is the squared error of its probabilities. Unlike an area under a curve, it is a mean over
records, so a subgroup can be compared with the rest and has a standard error.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from repsynth.arrays import Bools, Floats
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import DECILES, Points, Space, deciles_of, outlyingness
from repsynth.evaluation.prediction import Classifier
from repsynth.io.records import Records
from repsynth.privacy.formatting import fixed_upper
from repsynth.schema import Schema

MOST_VALUES = 12
"""Columns with more categories have no subgroups."""

LEAST = 50
"""Records that a subgroup needs."""

MOST_NEIGHBOURS = 5_000
"""Real records among which nearest neighbours are searched."""

DECILE = "outlier decile"

_CLEAR = 3.0  # standard errors


class Subgroup(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a subgroup, the distance of its columns, and the loss of a classifier in it.

    `extra` is the loss that training on synthetic instead of real records adds in the subgroup, minus what it adds
    among all others. None where it was not measured.
    """

    column: str
    value: str
    records: int
    fraction_real: float
    fraction_synthetic: float
    fraction_floor: float | None = None
    """For an outlier decile: the fraction of one real half that is in this decile of the other half."""
    distance: float | None = None
    distance_floor: float | None = None
    extra: float | None = None
    extra_standard_error: float | None = None
    extra_floor: float | None = None

    @property
    def name(self) -> str:
        return f"{self.column} {self.value}" if self.column == DECILE else f"{self.column} = {self.value}"

    @property
    def shown_error(self) -> str:
        """Two standard errors of `extra`, rounded up."""
        return fixed_upper(2 * (self.extra_standard_error or 0.0), 3)

    @property
    def pays_more(self) -> bool:
        return self.extra is not None and self.extra > _CLEAR * (self.extra_standard_error or 0.0)

    @property
    def too_few(self) -> bool:
        """Whether the synthetic fraction is clearly below four fifths of the real one."""
        if self.column == DECILE and self.value != str(DECILES):
            return False  # a lack in other deciles means more outliers
        error = np.sqrt(self.fraction_real * (1 - self.fraction_real) / max(self.records, 1))
        lack = self.fraction_real - self.fraction_synthetic
        return bool(self.fraction_synthetic < 0.8 * self.fraction_real and lack > _CLEAR * error)


class ExtraLosses(msgspec.Struct, frozen=True):
    """The loss of each test record, minus that of a classifier trained on real records."""

    synthetic: Floats
    half: Floats
    """The same for a classifier trained on half of the real records: the floor."""

    @classmethod
    def of(cls, test: Points, real: Classifier, half: Classifier, synthetic: Classifier) -> "ExtraLosses":
        usual = _squared(real, test)
        return cls(_squared(synthetic, test) - usual, _squared(half, test) - usual)

    def inside(self, here: Bools) -> dict[str, float]:
        """Return the extra loss of a subgroup against all others; nothing where either has too few records."""
        count, others = int(here.sum()), int((~here).sum())
        if count < LEAST or others < LEAST:
            return {}
        error = np.sqrt(self.synthetic[here].var() / count + self.synthetic[~here].var() / others)
        return {
            "extra": float(self.synthetic[here].mean() - self.synthetic[~here].mean()),
            "extra_standard_error": float(error),
            "extra_floor": float(self.half[here].mean() - self.half[~here].mean()),
        }


def _squared(model: Classifier, test: Points) -> Floats:
    labels = int(max(test.labels.max(), model.model.classes_.max())) + 1
    wrong = model.chances(test, labels)
    wrong[np.arange(len(test)), test.labels] -= 1
    return np.asarray((wrong**2).sum(axis=1) / 2)


def by_subgroup(
    train: Records,
    synthetic: Records,
    halves: tuple[Records, Records],
    schema: Schema,
    held_out: tuple[Records, ExtraLosses] | None,
    label: str | None,
) -> list[Subgroup]:
    """Measure every category of every discrete column with few of them; the label is among the columns."""
    found = []
    for column in schema.discrete:
        if column.size > MOST_VALUES:
            continue
        for code, value in enumerate(column.values):
            inside = [records.codes[column.name] == code for records in (train, synthetic, *halves)]
            if int(inside[0].sum()) < LEAST:
                continue
            near = _distances([train, synthetic, *halves], inside, schema)
            extra: dict[str, float] = {}
            if held_out is not None and column.name != label:  # within one label, a bias towards it costs nothing
                extra = held_out[1].inside(held_out[0].codes[column.name] == code)
            found.append(
                Subgroup(
                    column=column.name,
                    value=value,
                    records=int(inside[0].sum()),
                    fraction_real=float(inside[0].mean()),
                    fraction_synthetic=float(inside[1].mean()),
                    **near,
                    **extra,
                )
            )
    return found


def _distances(tables: Sequence[Records], inside: Sequence[Bools], schema: Schema) -> dict[str, float]:
    parts = [records.take(rows) for records, rows in zip(tables, inside, strict=True)]
    if not all(part.rows for part in parts):
        return {}
    return {
        "distance": measure_distances(parts[0], parts[1], schema, pairs=False).mean_one_way,
        "distance_floor": measure_distances(parts[2], parts[3], schema, pairs=False).mean_one_way,
    }


def by_decile(
    reference: Points, real: Points, synthetic: Points, losses: ExtraLosses | None, generator: np.random.Generator
) -> list[Subgroup]:
    """Return the deciles of real records by their outlyingness among `reference`, the most outlying last.

    A tenth of the synthetic records should be in each decile. `losses` are those of the real records, where these
    are the holdout.
    """
    space = Space.of(reference)
    among = space.place(_some(reference, MOST_NEIGHBOURS, generator))
    far = outlyingness(space.place(real), among)
    made = outlyingness(space.place(_some(synthetic, MOST_NEIGHBOURS, generator)), among)
    deciles = deciles_of(far)
    ends = np.array([far[deciles == d].max() for d in range(DECILES - 1)])
    # A record exactly at an end counts half on either side.
    places = [np.searchsorted(ends, made, side=side) for side in ("left", "right")]
    reached = np.mean([np.bincount(place, minlength=DECILES) for place in places], axis=0)
    floor = _by_the_other_half(far, generator)
    return [
        Subgroup(
            column=DECILE,
            value=str(d + 1),
            records=int((deciles == d).sum()),
            fraction_real=float((deciles == d).mean()),
            fraction_synthetic=float(reached[d] / len(made)),
            fraction_floor=float(floor[d]),
            **(losses.inside(deciles == d) if losses is not None else {}),
        )
        for d in range(DECILES)
    ]


def _by_the_other_half(far: Floats, generator: np.random.Generator) -> Floats:
    one, two = np.array_split(far[generator.permutation(len(far))], 2)
    places = np.searchsorted(np.quantile(one, np.arange(1, DECILES) / DECILES), two)
    return np.bincount(places, minlength=DECILES) / max(len(two), 1)


def _some(points: Points, most: int, generator: np.random.Generator) -> Points:
    return points if len(points) <= most else points.take(generator.permutation(len(points))[:most])

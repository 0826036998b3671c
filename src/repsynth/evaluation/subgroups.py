"""Who pays for it: utility by subgroup and by decile of outlyingness. Computed from data, so private.

Outliers weigh less in a release, so a synthetic table may tell less of minorities and of unusual people than of
others. What a classifier loses is the mean squared error of its probabilities: unlike an area under a curve, it
is a mean over records, so that a subgroup can be compared with the rest, and has a standard error.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from repsynth.arrays import Bools, Floats
from repsynth.data.records import Records
from repsynth.evaluation.distances import measure_distances
from repsynth.evaluation.matrix import Points, Space
from repsynth.evaluation.nearest import DECILES, deciles_of, outlyingness
from repsynth.evaluation.utility import Classifier
from repsynth.privacy.shown import fixed_at_most
from repsynth.schema import Schema

MOST_VALUES = 12
"""Columns with more categories make no subgroups."""

LEAST = 50
"""Records that a subgroup needs to be looked at."""

MOST_NEIGHBOURS = 5_000
"""Real records among which the nearest are looked for."""

_CLEAR = 3.0  # standard errors
_FEW_LABELS = 10


class Subgroup(msgspec.Struct, frozen=True, kw_only=True):
    """A subgroup: how many there are, how near its columns are, and what a classifier loses there.

    `extra` is by how much more the classifier trained on synthetic records loses here than there, over the one
    that was trained on real records. None where it was not measured.
    """

    column: str
    value: str
    records: int
    fraction_real: float
    fraction_synthetic: float
    fraction_floor: float | None = None
    """Of an outlier decile, what one half of the real records gives by the ends of the other's."""
    distance: float | None = None
    distance_floor: float | None = None
    auroc_real: float | None = None
    auroc_synthetic: float | None = None
    extra: float | None = None
    extra_standard_error: float | None = None
    extra_floor: float | None = None

    @property
    def name(self) -> str:
        return f"{self.column} {self.value}" if self.column == DECILE else f"{self.column} = {self.value}"

    @property
    def shown_error(self) -> str:
        """Two standard errors of `extra`, rounded up."""
        return fixed_at_most(2 * (self.extra_standard_error or 0.0), 3)

    @property
    def pays_more(self) -> bool:
        """Whether a classifier clearly loses more here than among the others."""
        return self.extra is not None and self.extra > _CLEAR * (self.extra_standard_error or 0.0)

    @property
    def too_few(self) -> bool:
        """Whether there are clearly fewer synthetic records than there should be: less than four fifths."""
        if self.column == DECILE and self.value != str(DECILES):
            return False  # who does not stand out may be missed by standing out
        error = np.sqrt(self.fraction_real * (1 - self.fraction_real) / max(self.records, 1))
        lack = self.fraction_real - self.fraction_synthetic
        return bool(self.fraction_synthetic < 0.8 * self.fraction_real and lack > _CLEAR * error)


DECILE = "outlier decile"


class Losses(msgspec.Struct, frozen=True):
    """What three classifiers lose of each test record, and their scores: trained on real records, on half of them,
    and on synthetic ones."""

    test: Points
    real: Classifier
    half: Classifier
    synthetic: Classifier

    def extra(self, other: Classifier) -> Floats:
        """By how much more another classifier loses of each record than the one trained on real records."""
        return _squared(other, self.test) - _squared(self.real, self.test)


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
    held_out: tuple[Records, Losses] | None,
    label: str | None,
) -> list[Subgroup]:
    """Every category of every discrete column with few of them; in the schema, the label is a column like
    others."""
    found = []
    extras = None if held_out is None else Extras.of(held_out[1])
    for column in schema.discrete:
        if column.size > MOST_VALUES:
            continue
        for code, value in enumerate(column.values):
            inside = [records.codes[column.name] == code for records in (train, synthetic, *halves)]
            if int(inside[0].sum()) < LEAST:
                continue
            near = _distances([train, synthetic, *halves], inside, schema)
            # Errors among the records of one label are no measure: leaning to it costs nothing there.
            predicted = held_out is not None and column.name != label
            here = held_out[0].codes[column.name] == code if held_out and predicted else None
            found.append(
                Subgroup(
                    column=column.name,
                    value=value,
                    records=int(inside[0].sum()),
                    fraction_real=float(inside[0].mean()),
                    fraction_synthetic=float(inside[1].mean()),
                    **near,
                    **(extras.inside(here) if extras is not None and here is not None else {}),
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


class Extras(msgspec.Struct, frozen=True):
    """The extra losses of each test record, and the scores of both classifiers."""

    losses: Losses
    synthetic: Floats
    half: Floats
    scores: tuple[Floats, Floats]

    @classmethod
    def of(cls, losses: Losses) -> "Extras":
        """Worked out once for all subgroups."""
        scores = (losses.real.scores(losses.test), losses.synthetic.scores(losses.test))
        return cls(losses, losses.extra(losses.synthetic), losses.extra(losses.half), scores)

    def inside(self, here: Bools) -> dict[str, float]:
        """Of a subgroup, against all others; nothing where there are too few."""
        from repsynth.evaluation.utility import auroc

        count, others = int(here.sum()), int((~here).sum())
        if count < LEAST or others < LEAST:
            return {}
        labels = self.losses.test.labels[here]
        found = {
            "extra": float(self.synthetic[here].mean() - self.synthetic[~here].mean()),
            "extra_standard_error": float(
                np.sqrt(self.synthetic[here].var() / count + self.synthetic[~here].var() / others)
            ),
            "extra_floor": float(self.half[here].mean() - self.half[~here].mean()),
        }
        _, counts = np.unique(labels, return_counts=True)
        if len(counts) > 1 and counts.min() >= _FEW_LABELS:
            models = (self.losses.real, self.losses.synthetic)
            areas = [auroc(labels, s[here], m.model.classes_) for s, m in zip(self.scores, models, strict=True)]
            found |= {"auroc_real": areas[0], "auroc_synthetic": areas[1]}
        return found


def by_decile(
    reference: Points, real: Points, synthetic: Points, losses: Losses | None, generator: np.random.Generator
) -> list[Subgroup]:
    """Deciles of real records by how far they lie from some others of the real table, the most outlying last.

    A tenth of the synthetic records should lie as far out as each tenth of the real ones. `losses` are those of
    the real records, where these are the held-out ones.
    """
    space = Space.of(reference)
    among = space.place(_some(reference, MOST_NEIGHBOURS, generator))
    far = outlyingness(space.place(real), among)
    made = outlyingness(space.place(_some(synthetic, MOST_NEIGHBOURS, generator)), among)
    deciles = deciles_of(far)
    ends = np.array([far[deciles == d].max() for d in range(DECILES - 1)])
    # Who lies exactly at an end belongs half to either side.
    places = [np.searchsorted(ends, made, side=side) for side in ("left", "right")]
    reached = np.mean([np.bincount(place, minlength=DECILES) for place in places], axis=0)
    floor = _by_the_other_half(far, generator)
    extras = None if losses is None else Extras.of(losses)
    return [
        Subgroup(
            column=DECILE,
            value=str(d + 1),
            records=int((deciles == d).sum()),
            fraction_real=float((deciles == d).mean()),
            fraction_synthetic=float(reached[d] / len(made)),
            fraction_floor=float(floor[d]),
            **(extras.inside(deciles == d) if extras is not None else {}),
        )
        for d in range(DECILES)
    ]


def _by_the_other_half(far: Floats, generator: np.random.Generator) -> Floats:
    """The fraction of one half in each decile of the other."""
    one, two = np.array_split(far[generator.permutation(len(far))], 2)
    places = np.searchsorted(np.quantile(one, np.arange(1, DECILES) / DECILES), two)
    return np.bincount(places, minlength=DECILES) / max(len(two), 1)


def _some(points: Points, most: int, generator: np.random.Generator) -> Points:
    return points if len(points) <= most else points.take(generator.permutation(len(points))[:most])

"""A release: differentially private outputs and public knowledge, nothing else.

It holds no reference to the data. Everything in it may be published, and everything it can do is
post-processing: fit, sample, and tell what it cost.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from repsynth.decode import Layout, decode, to_kind
from repsynth.encode import Records
from repsynth.errors import ConfigError
from repsynth.marginals import Marginals
from repsynth.models.marginal import fit_marginals
from repsynth.models.naive_bayes import WeightedSums, fit_naive_bayes
from repsynth.models.network import Trained, fit_network
from repsynth.models.stages import Fitted, Measured, StageOne, Weighted
from repsynth.models.tables import Tables
from repsynth.noise import Event, SampledEvent
from repsynth.plan import Settings
from repsynth.privacy import Privacy
from repsynth.schema import Category, Schema
from repsynth.score import Score
from repsynth.threshold import Threshold
from repsynth.weigh import Random, WeightFunction

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_BATCH = 131_072


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a run leaves behind: the measurements and the public functions made from them.

    `measured` holds, for each measurement of stage 2, the public function of a record that was summed up and
    the noisy result; `trained` what training left behind instead, where the model is trained. `private` is
    False only where the noise was drawn from a seed, as experiments do.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6)
    >>> folder = release.save(Path(tempfile.mkdtemp()) / "release")
    >>> Release.load(folder).sample(3, seed=1).num_rows
    3
    >>> release.privacy.share_at_most(0.5) > 0.1  # outliers lose less
    True
    """

    stage: StageOne
    layout: Layout
    settings: Settings
    events: tuple[Event, ...]
    measured: tuple[Measured[Weighted], ...]
    trained: Trained | None = None
    private: bool = True

    def __repr__(self) -> str:
        stamp = "" if self.private else ", NOT PRIVATE"
        return f"<Release: {len(self.schema.columns)} columns, ε = {self.privacy.epsilon:.4g}{stamp}>"

    @cached_property
    def model(self) -> Fitted:
        """The fitted model."""
        if self.trained is not None:
            return fit_network(self.trained.network, self.trained.parameters)
        tables = [m for m in self.measured if isinstance(m.statistic, Tables)]
        if tables:
            return fit_marginals(self.stage, cast("list[Measured[Tables]]", tables))
        sums = self.measured[0]
        assert isinstance(sums.statistic, WeightedSums)
        return fit_naive_bayes(
            self.schema,
            self.marginals,
            sums.statistic,
            sums.noisy,
            sigma=sums.sigma,
            outlier_weight=self.stage.outlier_weight,
        )

    @cached_property
    def privacy(self) -> Privacy:
        """What the release cost: in all, per weight, and how that is spread over the records."""
        return Privacy(
            events=self.events,
            delta=self.settings.budget.delta,
            rows=self.rows,
            threshold=self.threshold,
            weights=self.weights,
            private=self.private,
        )

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return self.stage.schema

    @property
    def marginals(self) -> Marginals:
        """The noisy histograms."""
        return self.stage.marginals

    @property
    def rows(self) -> float:
        """The released or declared number of records."""
        return self.stage.marginals.rows

    @property
    def threshold(self) -> Threshold | None:
        """Where outliers begin, where that was measured."""
        return self.stage.threshold

    @property
    def score(self) -> Score:
        """The public score function."""
        return self.stage.score

    @property
    def weights(self) -> WeightFunction:
        """The public weight of each score."""
        return self.stage.weights

    @property
    def training(self) -> SampledEvent:
        """The rounds by which a trained model was made."""
        (event,) = [event for event in self.events if isinstance(event, SampledEvent)]
        return event

    @property
    def statistic(self) -> Weighted:
        """The public function of a record that the last measurement summed up."""
        return self.measured[-1].statistic

    @property
    def sums(self) -> Ints:
        """Its noisy result."""
        return self.measured[-1].noisy

    def influence(self, records: Records) -> Floats:
        """Each record's share of the largest influence in stage 2; private, as the records are."""
        if self.trained is not None:
            return self.trained.network.influence(records)
        return self.statistic.influence(records)

    def sample(self, rows: int | None = None, *, seed: int | None = None, label: Any = None) -> Any:
        """A synthetic table of the kind that came in: free of charge, as often as wanted.

        By default it has as many rows as the released (noisy or declared) count says. With `label`, a value of
        the label column, all rows have that label.
        """
        batches = list(self.batches(rows, seed=seed, label=label))
        return to_kind(pa.concat_tables(batches), self.layout)

    def batches(
        self, rows: int | None = None, *, seed: int | None = None, label: Any = None
    ) -> Iterator[pa.Table]:
        """The same table in pieces, so that any number of rows fits into memory."""
        rows = self.default_rows if rows is None else rows
        if not isinstance(rows, int | np.integer) or not 0 <= rows <= 10**12:
            raise ConfigError("the number of rows must be a whole number from 0 to 10^12")
        code = None if label is None else self._label_code(label)
        generator = np.random.default_rng(seed)
        for start in range(0, max(rows, 1), _BATCH):
            records = self.model.draw(min(_BATCH, rows - start), generator, code)
            yield decode(records, self.schema, self.layout, first_id=start + 1)

    def _label_code(self, label: Any) -> int:
        column = self.schema.label_column
        if column is None:
            raise ConfigError("the release has no label column, so rows cannot be drawn for one label")
        values = column.values
        wanted = str(label) if isinstance(column, Category) else str(label).lower()
        if wanted not in values:
            shown = ", ".join(values[:10]) + (", ..." if len(values) > 10 else "")
            raise ConfigError(f"'{label}' is not a value of the label '{column.name}'; use one of {shown}")
        return values.index(wanted)

    @property
    def default_rows(self) -> int:
        """The released number of records."""
        return max(1, round(self.rows))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the release itself shows to be wrong, in words; all of it may be published."""
        notes = []
        sigma = self.marginals.sigma
        if self.rows < 4 * sigma:
            notes.append(
                f"noise drowns the data: one cell's noise is {sigma:,.0f} records, the table has about "
                f"{self.rows:,.0f}; use a larger epsilon or more records"
            )
        if self.settings.budget.delta * self.rows > 1:
            notes.append("delta is larger than one over the number of records; use a smaller one")
        if isinstance(self.settings.rule, Random):
            notes.append("the small weights were dealt out at random: outliers are not protected")
        for i, cells in enumerate(self.marginals.cells):
            unread = self.marginals.noisy(i)[-1]
            declared = cells.column.missing
            if not declared and unread > max(5 * sigma, 0.02 * self.rows):
                notes.append(
                    f"about {unread / self.rows:.0%} of column '{cells.column.name}' could not be read by the "
                    "schema (missing, unknown category or wrong type); add missing = true or the values"
                )
        return tuple(notes)

    def save(self, folder: str | Path) -> Path:
        """Write the release folder: JSON and npz, whole or not at all."""
        from repsynth.files import save_release

        return save_release(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "Release":
        """Read a release folder, checking everything in it."""
        from repsynth.files import load_release

        return load_release(Path(folder))

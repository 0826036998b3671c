"""A release: differentially private outputs and public knowledge, nothing else.

It holds no reference to the data. Everything in it may be published, and everything it does is post-processing.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.errors import ConfigError, RepsynthWarning
from repsynth.io.ids import check_ids, room_for_ids
from repsynth.io.records import Records
from repsynth.io.write import Kind, decode, to_kind
from repsynth.mechanism.kernels import Chosen, Rounds, Statistic
from repsynth.models.base import ModelRelease, Sampler
from repsynth.planning.plan import Plan
from repsynth.planning.warnings import plan_warnings, some
from repsynth.privacy.events import Event
from repsynth.privacy.formatting import Z_95, Summarised, Summary, fixed_upper, points
from repsynth.privacy.loss import Loss
from repsynth.privacy.unit import outlying, unit_of
from repsynth.release.account import NoisyFraction, Privacy
from repsynth.release.accuracy import expected_errors
from repsynth.sampling.conditional import complete, read_given
from repsynth.sampling.constraints import Drawn, Support, fit_support
from repsynth.schema import Category, Schema
from repsynth.schema.conditions import parse_condition
from repsynth.scoring.base import Score
from repsynth.scoring.stage import StageOne, solved_rule
from repsynth.scoring.threshold import Threshold, lost_mass
from repsynth.scoring.weights import Rule, WeightFunction
from repsynth.threads import how_many_workers, in_order

_PIECE = 65_536
"""The number of rows of a piece. A seeded table depends on it."""

_ABOVE_NOISE, _MUCH_LESS = 5.0, 0.7
"""Warn if a count is this many standard errors above 0, or a label's mean weight this part of the others'."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Release(Summarised):
    """The result of a run: its plan, the measurements of both stages, and their events.

    `publishable` is False if the noise was drawn from a seed, for experiments.

    >>> import tempfile
    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6)
    >>> folder = release.save(Path(tempfile.mkdtemp()) / "release")
    >>> Release.load(folder).sample(3, seed=1).num_rows
    3
    >>> release.privacy.fraction_at_most(0.5) > 0.1  # outliers lose less
    True
    """

    plan: Plan
    kind: Kind
    """The type that `sample` returns: a "pandas" or "polars" data frame, or an "arrow" table."""
    stage: StageOne
    fit: ModelRelease
    events: tuple[Event, ...]
    publishable: bool = True

    @property
    def summary(self) -> Summary:
        """The promise, who has it, and how exact the release is."""
        schema, expected = self.schema, expected_errors(self)
        who = outlying(schema, at_random=not self.plan.scorer.targets_outliers)
        made = self.privacy.summary_for(who, "people" if schema.person is None else "rows")
        stamp = "" if self.publishable else "NOT PRIVATE: the noise came from a seed, for experiments only.\n"
        noise = f"± {fixed_upper(Z_95 * expected.rows_standard_error, 0)} (95 %)"
        noise = noise if self.plan.public_rows is None else "(public)"
        error = max(column.standard_error for column in expected.columns)
        facts = (
            ("Who is protected", unit_of(schema)),
            *made.facts[:-1],
            ("Noise in a share", f"{points(error)} or less (95 %)"),
            ("People" if schema.rows_per_person == 1 else "Rows that count", f"{self.rows:,.0f} {noise}"),
            ("Model", self.plan.model.name),
        )
        return Summary(stamp + made.answer, facts)

    @cached_property
    def sampler(self) -> Sampler:
        """The fitted model. It is fitted once, when it is first needed."""
        return self.fit.sampler

    def support(self, ignore_rules: Iterable[int] = ()) -> Support:
        """Return the fitted model, restricted to the records that obey all rules but the ignored ones."""
        ignored = frozenset(ignore_rules)
        if ignored not in self._supports:
            self._supports[ignored] = fit_support(self.sampler, self.schema, self.rows, ignored)
        return self._supports[ignored]

    @cached_property
    def _supports(self) -> dict[frozenset[int], Support]:
        return {}

    @cached_property
    def privacy(self) -> Privacy:
        """The privacy account: in total, by weight, and the distribution of losses over the records."""
        return Privacy(
            events=self.events,
            delta=self.plan.delta,
            rows=self.rows,
            threshold=self.threshold,
            weights=self.weights,
            borrowed=self.stage.borrowed,
            schema_loss=Loss.of_schema(self.schema),
        )

    @cached_property
    def schema(self) -> Schema:
        return self.stage.schema

    @cached_property
    def histograms(self) -> Histograms:
        return self.stage.histograms

    @cached_property
    def rows(self) -> float:
        """The released or declared number of records."""
        return self.stage.histograms.rows

    @cached_property
    def threshold(self) -> Threshold | None:
        return self.stage.threshold

    @cached_property
    def score(self) -> Score:
        return self.stage.score

    @cached_property
    def weights(self) -> WeightFunction:
        return self.stage.weights

    @property
    def rule(self) -> Rule:
        """The weight rule, with the strength that the limit on lost mass allows."""
        return solved_rule(self.plan, self.threshold, lowest=self.score.lowest)

    @property
    def lost_mass(self) -> float | None:
        """The estimated mean lost weight, 1 − mean weight, from the released scores; None without a threshold."""
        return lost_mass(self.threshold, self.weights) if self.threshold else None

    def kernels(self) -> dict[str, Statistic | Chosen | Rounds]:
        """Return the public functions of a record that were measured, by name, in the order of the plan."""
        found = {**self.stage.kernels(), **self.fit.kernels()}
        return {name: found[name] for name in self.plan.steps}

    def influence(self, records: Records) -> Floats:
        """Return each record's weight, its largest share of any weighted measurement: PRIVATE."""
        return self.stage.influence(records)

    def sample(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        label: Any = None,
        where: str | None = None,
        given: Any = None,
        ignore_rules: Iterable[int] = (),
    ) -> Any:
        """Draw a synthetic table of the type of the input. Sampling costs no privacy.

        The default number of rows is the released (noisy or declared) count. With `label`, all rows have this
        value of the label column. With `where`, all rows meet a condition such as 'sex = "F" and age < 40'.
        `given` is a table of some of the columns; its rows are completed in order. Every row obeys the rules of
        the schema, except those whose numbers are in `ignore_rules`. Warns (`RepsynthWarning`) if the rules leave
        too few records to choose from.
        """
        asked = {"seed": seed, "label": label, "where": where, "given": given, "ignore_rules": ignore_rules}
        batches = list(in_order(lambda piece: piece(), self.pieces(rows, **asked), how_many_workers()))
        if given is None:
            for text in self.support(ignore_rules).cautions(self.default_rows if rows is None else rows):
                warnings.warn(text, RepsynthWarning, stacklevel=2)
        return to_kind(pa.concat_tables(batches), self.schema, self.kind)

    def pieces(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        label: Any = None,
        where: str | None = None,
        given: Any = None,
        ignore_rules: Iterable[int] = (),
        drawn: Drawn | None = None,
        csv: bool = False,
    ) -> Iterator[Callable[[], pa.Table]]:
        """Return functions that each draw one piece of the table, so that any number of rows fits into memory.

        A piece does not depend on the thread that draws it or on the order of drawing. `drawn` counts the records
        that were drawn. With `csv`, numbers have their declared decimals.
        """
        asked = None
        if given is not None:
            if rows is not None or label is not None:
                raise ConfigError("given rows set the number of rows and the label; leave both arguments out")
            asked = read_given(given, self.schema)
            rows = asked.records.rows
        rows = self.default_rows if rows is None else rows
        if not isinstance(rows, int | np.integer) or not 0 <= rows <= 10**12:
            raise ConfigError("the number of rows must be a whole number from 0 to 10^12")
        check_ids(self.schema, int(rows))
        code = None if label is None else self._label_code(label)
        condition = None if where is None else parse_condition(where, self.schema)
        counted = drawn or Drawn()
        support, entropy = self.support(ignore_rules), np.random.SeedSequence(seed).entropy
        assert isinstance(entropy, int)

        def piece(start: int) -> pa.Table:
            # Each piece has its own random stream.
            own = np.random.SeedSequence(entropy, spawn_key=(start // _PIECE,))
            size = min(_PIECE, rows - start)
            generator = np.random.default_rng(own)
            if asked is None:
                records = support.draw(size, generator, counted, label=code, where=condition)
            else:
                records = complete(support, condition, asked.part(start, size), start + 1, generator, counted)
            return decode(records, self.schema, first_id=start + 1, seed=entropy, csv=csv)

        return (partial(piece, start) for start in range(0, max(rows, 1), _PIECE))

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
        """The released number of records, or the number of different ids if that is smaller."""
        rows, room = max(1, round(self.rows)), room_for_ids(self.schema)
        return rows if room is None else min(rows, room)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts that warn about the release. All of them may be published."""
        return (*plan_warnings(self.plan, self.rows), *self._unread(), *self._underweighted_labels())

    def _unread(self) -> Iterator[str]:
        coarse, sigma = self.stage.coarse, self.stage.coarse.sigma
        for i, bins in enumerate(coarse.bins):
            unread = coarse.noisy(i)[-1]
            if not bins.column.missing and unread > max(_ABOVE_NOISE * sigma, 0.02 * self.rows):
                yield (
                    f"about {NoisyFraction.of(unread / self.rows, sigma / self.rows)} of column "
                    f"'{bins.column.name}' could not be read by the schema (missing, unknown category or wrong "
                    "type); add missing = true or the values (repsynth check shows, privately, which)"
                )

    def _underweighted_labels(self) -> Iterator[str]:
        """Compare the sum of the weights of each label with its unweighted count."""
        column, masses = self.schema.label_column, self.fit.label_masses()
        if column is None or masses is None or not self.stage.weighted or not self.plan.scorer.targets_outliers:
            return
        (mass, noise), sigma = masses, self.stage.coarse.sigma
        count = self.stage.coarse.noisy(self.schema.learned.index(column))[:-1]
        mass_of_others, others = mass.sum() - mass, count.sum() - count
        lack = mass_of_others * count - mass * others  # 0 if all labels have the same mean weight
        error = np.hypot(noise * np.hypot(count, others), sigma * np.hypot(mass, mass_of_others))
        error *= math.sqrt(max(column.size - 1, 1))
        much = mass * others < _MUCH_LESS * mass_of_others * count
        clear = (lack > _ABOVE_NOISE * error) & (np.minimum(count, others) > _ABOVE_NOISE * sigma)
        found = np.flatnonzero(much & clear)
        if found.size:
            ratio = np.min(mass[found] * others[found] / (mass_of_others[found] * count[found]))
            labels = some([f"'{column.values[k]}'" for k in found])
            yield (
                f"records whose {column.name} is {labels} have about {max(ratio, 0.0):.0%} of the mean weight of "
                "others: more of them are outliers, so less is learned from them; a smaller outlier fraction "
                "reduces the difference"
            )

    def save(self, folder: str | Path) -> Path:
        """Write the release folder, completely or not at all."""
        from repsynth.release.store import save_release

        return save_release(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "Release":
        """Read a release folder and check every part of it."""
        from repsynth.release.verify import load_release

        return load_release(Path(folder))

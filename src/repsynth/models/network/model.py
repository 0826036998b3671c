"""The autoregressive model: its settings, its plan, and its files. Training spends all that stage 1 leaves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from repsynth.errors import ConfigError
from repsynth.models.base import Hooks, Kept, Made, Model, Resources, run_seconds
from repsynth.privacy.events import RATE_UNIT, SampledEvent

if TYPE_CHECKING:
    from repsynth.arrays import Arrays, Floats
    from repsynth.data.records import Records
    from repsynth.mechanism.meter import Meter
    from repsynth.models.network.network import Autoregression, Network
    from repsynth.models.network.training import Training
    from repsynth.schema import Schema
    from repsynth.scoring.stage import RunPlan, StageOne

GRADIENTS = "gradients"
_MOST_CELLS = 2**25
_NOISY_ROUND = 0.02  # noise relative to the clip norm and the expected sample


class Autoregressive(Model, frozen=True):
    """A network trained by DP-SGD; needs repsynth[autoregressive]."""

    name: ClassVar[str] = "autoregressive"
    score_share: ClassVar[float] = 0.1
    what: ClassVar[str] = "The network and the records take"
    purposes: ClassVar[Mapping[str, str]] = {GRADIENTS: "weighted clipped gradients"}
    epochs: Annotated[float, Meta(ge=0.01, le=10_000, description="how often a record takes part on average")] = (
        15.0
    )
    sampling_rate: Annotated[
        float, Meta(ge=0.001, le=1, description="chance that a record takes part in a round")
    ] = 0.05
    hidden: Annotated[
        int | None,
        Meta(ge=0, le=256, description="hidden units, 0 for none (default: by the records and the noise)"),
    ] = None

    def check(self, schema: "Schema", max_model_mb: int) -> None:
        """Refuse a table of one column, a label of too many values, and a network that does not fit in memory."""
        from repsynth.models.network.network import MOST_NETWORK_GROUPS

        if len(schema.learned) < 2:
            raise ConfigError(f"the model {self.name} needs two columns at least; use naive-bayes")
        if self.hidden and len(schema.learned) < 3:
            raise ConfigError("hidden units tell a column from two others; with two columns, use --hidden 0")
        if schema.label_column is not None and schema.label_column.size > MOST_NETWORK_GROUPS:
            most = f"a network takes {MOST_NETWORK_GROUPS} at most"
            raise ConfigError(f"the label has {schema.label_column.size:,} values, and {most}; use naive-bayes")
        needed = _megabytes(schema)
        if needed > max_model_mb:
            raise ConfigError(
                f"the network may take {needed:,.0f} MB, more than the {max_model_mb:,} MB allowed; "
                "allow more with --max-model-mb, drop columns, or use naive-bayes"
            )

    def require(self) -> None:
        """Refuse to start where the accounting library is missing."""
        from repsynth.privacy.pld import accounting_library

        accounting_library()

    def rounds(self) -> SampledEvent:
        """Return the rounds that the epochs take; their noise is not known yet."""
        from repsynth.models.network.gradients import CLIP_UNITS
        from repsynth.privacy.pld import MOST_ROUNDS

        rate = max(1, round(self.sampling_rate * RATE_UNIT)) / RATE_UNIT
        rounds = max(1, round(self.epochs / rate))
        if rounds > MOST_ROUNDS:
            raise ConfigError(
                f"{self.epochs:g} epochs at a sampling rate of {self.sampling_rate:g} make {rounds:,} rounds; "
                f"at most {MOST_ROUNDS:,} are supported: raise the rate or lower the epochs"
            )
        return SampledEvent(GRADIENTS, float(CLIP_UNITS), math.inf, rate, rounds, weighted=True)

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Estimate memory and time, by times measured on one core.

        A record in a round takes 0.35 µs per column and 0.1 ns per pair of features; a round 1 ms, 0.1 ms per
        column, and 1 µs per parameter for its noise; accounting a second, and the levels of a column 50 ms.
        """
        assert plan.training is not None
        columns, hidden = len(plan.schema.learned), self._units(plan, rows)
        features = 0.7 * _most_features(plan.schema)  # about: rare values share a group
        megabytes = _megabytes(plan.schema) + rows * (columns + 1) * 4 / 2**20
        taking_part = plan.training.rate * rows
        of_record = 0.35e-6 * columns + 1e-10 * features**2 + hidden * (2e-8 + 2.5e-10 * features)
        of_round = 1e-3 + 1e-4 * columns + 1e-6 * (features**2 / 2 + hidden * features)
        seconds = plan.training.rounds * (of_round + taking_part * of_record)
        seconds += run_seconds(plan, rows, cell=2.5e-6) + 1.0 + 0.05 * columns
        noisy = _of_a_row(plan).noise / taking_part > _NOISY_ROUND
        warnings = ("rounds are mostly noise at this size; naive-bayes may do better",) if noisy else ()
        return Resources(megabytes, seconds, warnings)

    def _units(self, plan: "RunPlan", rows: float) -> int:
        from repsynth.models.network.training import units_for

        return units_for(_of_a_row(plan), rows, len(plan.schema.learned)) if self.hidden is None else self.hidden

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "NetworkFit":
        from repsynth.models.network.network import Network
        from repsynth.models.network.training import train

        assert plan.training is not None
        hooks.on_step(GRADIENTS)
        network = Network.of(stage, self._units(plan, stage.histograms.rows))
        return NetworkFit(network, _of_a_row(plan), train(meter, network, plan.training, hooks))

    def load(self, kept: Kept) -> "NetworkFit":
        """Read a fit from untrusted files. Features are stored because a basis is not unique."""
        import numpy as np

        from repsynth.columns.groups import read_groups
        from repsynth.models.network.gradients import CLIP_UNITS
        from repsynth.models.network.network import LARGEST_PARAMETER, MOST_HIDDEN, Network
        from repsynth.storage import floats, ints, require

        require(not kept.described and kept.plan.training is not None, "its parts are not its model's")
        event = _of_a_row(kept.plan)
        require(event.sensitivity == CLIP_UNITS, "its training is out of range")
        stage, arrays = kept.stage, kept.arrays
        groups = tuple(read_groups(arrays[f"groups_{i}"], bins) for i, bins in enumerate(stage.histograms.bins))
        features = []
        for i, each in enumerate(groups):
            array = arrays[f"features_{i}"]
            require(len(array) % each.count == 0 and len(array) <= each.count**2, "its features do not fit")
            features.append(np.array(floats(array, len(array))).reshape(each.count, -1))
        degrees = ints(arrays["degrees"])
        seen = len(degrees) <= MOST_HIDDEN and bool(np.all((degrees >= 1) & (degrees < len(groups))))
        require(seen and self.hidden in (None, len(degrees)), "its hidden units are out of range")
        width = sum(feature.shape[1] for feature in features) + len(degrees)
        require(width**2 <= _MOST_CELLS, "its network is too large")
        network = Network(stage, groups, tuple(features), degrees)
        parameters = np.array(floats(arrays["parameters"], network.size))
        for values in (parameters, *features):
            require(float(np.abs(values).max(initial=0.0)) <= LARGEST_PARAMETER, "a parameter is out of range")
        return NetworkFit(network, event, parameters)


@dataclass(frozen=True)
class NetworkFit:
    """A trained network."""

    network: "Network"
    event: SampledEvent
    parameters: "Floats"

    def kernels(self, *, choices: bool = True) -> "dict[str, Training]":
        from repsynth.models.network.training import Recipe, Training

        recipe = Recipe.of(self.network, self.event)
        return {GRADIENTS: Training(self.network, self.event, recipe, self.parameters)}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: "Records") -> None:
        """Unknown: what training clips changes from round to round."""

    def label_masses(self) -> None:
        """Unknown: gradients add up no weights."""

    def log_likelihoods(self, records: "Records") -> "Floats":
        """Return the log-likelihood of each record, which shadow runs compare."""
        return self.network.log_likelihoods(self.parameters, self.network.parts(records))

    def sampler(self) -> "Autoregression":
        from repsynth.models.network.network import Autoregression

        return Autoregression.fit(self.network, self.parameters)

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        network = self.network
        return {}, {
            "parameters": self.parameters,
            "degrees": network.degrees,
            **{f"groups_{i}": groups.of_bin for i, groups in enumerate(network.groups)},
            **{f"features_{i}": features.ravel() for i, features in enumerate(network.features)},
        }


def _of_a_row(plan: "RunPlan") -> SampledEvent:
    """Return the training in units of one row, where a person may have several."""
    assert plan.training is not None
    return plan.training.of_a_row(plan.schema.rows_per_person)


def _megabytes(schema: "Schema") -> float:
    """Return the largest memory of a network: ten squares of its features."""
    return max(1.0, 10 * 8 * _most_features(schema) ** 2 / 2**20)


def _most_features(schema: "Schema") -> int:
    """Return the largest number of features that a network of this schema can have."""
    from repsynth.models.network.network import MOST_FEATURES, SMOOTH_FEATURES
    from repsynth.schema import Numeric

    most = max(2, MOST_FEATURES // max(len(schema.learned), 1))
    return sum(
        min(most, SMOOTH_FEATURES if isinstance(column, Numeric) else column.size + column.missing - 1)
        for column in schema.learned
    )

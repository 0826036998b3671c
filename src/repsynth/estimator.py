"""An estimator in the style of scikit-learn: construct, fit, sample."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repsynth.api import synthesize
from repsynth.errors import ConfigError
from repsynth.schema import Schema

if TYPE_CHECKING:
    from repsynth.models.base import Model
    from repsynth.planning.settings import Settings
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.release import Release
    from repsynth.scoring.base import Scorer
    from repsynth.scoring.weights import Rule


class RepsSynthesizer:
    """A synthesizer in the style of scikit-learn: fitting spends the budget, sampling is free.

    `schema` is a Schema or the path of one. The other parameters are those of `repsynth.synthesize`, and `fit`
    checks them. `release_` holds the differentially private outputs, and nothing else.

    >>> from repsynth import datasets
    >>> sim = datasets.load("sim")
    >>> synthesizer = RepsSynthesizer(sim.schema, epsilon=1.0, model="naive-bayes")
    >>> synthesizer.fit(sim.table).sample(5).num_rows
    5
    """

    release_: "Release"
    feature_names_in_: Any
    n_features_in_: int

    def __init__(
        self,
        schema: Schema | str | Path | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        model: "str | Model | None" = None,
        weights: "str | Rule | None" = None,
        scorer: "str | Scorer | None" = None,
        outlier_epsilon: float | None = None,
        outlier_fraction: float | None = None,
        public_rows: int | None = None,
        ledger: "str | Path | Ledger | None" = None,
        dataset: str | None = None,
        settings: "Settings | str | Path | None" = None,
    ) -> None:
        self.schema = schema
        self.epsilon = epsilon
        self.delta = delta
        self.model = model
        self.weights = weights
        self.scorer = scorer
        self.outlier_epsilon = outlier_epsilon
        self.outlier_fraction = outlier_fraction
        self.public_rows = public_rows
        self.ledger = ledger
        self.dataset = dataset
        self.settings = settings

    def fit(self, X: Any, y: Any = None) -> "RepsSynthesizer":  # noqa: N803
        """Read the table, its label included, and spend the budget. `y` must be None.

        A second call is refused, since it would spend the budget again. Use `sklearn.base.clone` to fit once more.
        """
        if y is not None:
            raise ConfigError("the label is a column of the table, named in the schema; leave y out")
        if self.__sklearn_is_fitted__():
            raise ConfigError("fitted already, and every fit spends the budget again; clone it if you mean to")
        if self.schema is None:
            raise ConfigError("a schema is needed: what is public about the columns; see repsynth.draft_schema")
        parameters = {name: value for name, value in self.get_params().items() if value is not None}
        release = synthesize(X, **parameters)
        names = [column.name for column in release.schema.columns]
        self.feature_names_in_, self.n_features_in_ = np.array(names, dtype=object), len(names)
        self.release_ = release
        return self

    def sample(self, n: int | None = None, *, seed: int | None = None, label: Any = None) -> Any:
        """Draw synthetic rows, as the kind of table that was fitted; by default as many as the released count."""
        if not self.__sklearn_is_fitted__():
            raise ConfigError("not fitted yet; call fit with the table first")
        return self.release_.sample(n, seed=seed, label=label)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}

    def set_params(self, **parameters: Any) -> "RepsSynthesizer":
        """Change some parameters. A fitted release does not change."""
        unknown = parameters.keys() - set(_NAMES)
        if unknown:
            raise ValueError(f"no parameter {sorted(unknown)[0]!r}; there are {', '.join(_NAMES)}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        parameters = {name: value for name, value in self.get_params().items() if value is not None}
        if isinstance(self.schema, Schema):
            parameters["schema"] = f"<Schema: {len(self.schema.columns)} columns>"
        given = [f"{name}={value if name == 'schema' else repr(value)}" for name, value in parameters.items()]
        return f"RepsSynthesizer({', '.join(given)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "release_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        takes = InputTags(two_d_array=True, categorical=True, string=True, allow_nan=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=takes)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the parameters only. A release is saved to a folder, which is checked when it is loaded."""
        if self.__sklearn_is_fitted__():
            raise TypeError("a fitted synthesizer is not pickled; keep synthesizer.release_.save(folder) instead")
        return self.get_params()


_NAMES = ("schema", *(RepsSynthesizer.__init__.__kwdefaults__ or {}))

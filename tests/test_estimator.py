"""scikit-learn's manners: its own checks, as far as they apply to what is fitted once and spends a budget."""

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from repsynth import ConfigError, Ledger, RepsSynthesizer, datasets
from repsynth.privacy.budget import Budget

SIM = datasets.load("sim")


def frame(rows: int = 600) -> pd.DataFrame:
    return SIM.table.slice(0, rows).to_pandas()


def synthesizer(**options: Any) -> RepsSynthesizer:
    return RepsSynthesizer(SIM.schema, **({"epsilon": 1.0, "model": "naive-bayes"} | options))


@pytest.mark.parametrize(
    "check",
    [
        "check_get_params_invariance",
        "check_set_params",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_estimator_repr",
        "check_estimator_cloneable",
        "check_estimator_tags_renamed",
    ],
)
def test_scikit_learn_s_own_checks(check: str) -> None:
    getattr(estimator_checks, check)("RepsSynthesizer", RepsSynthesizer())


def test_a_table_comes_back_as_what_it_was() -> None:
    fitted = synthesizer().fit(frame())
    drawn = fitted.sample(50, seed=1)
    assert isinstance(drawn, pd.DataFrame)
    assert list(drawn.columns) == list(frame().columns) == list(fitted.feature_names_in_)
    assert len(drawn) == 50
    assert fitted.n_features_in_ == len(drawn.columns)
    assert fitted.release_.privacy.epsilon <= 1.0 + 1e-9
    check_is_fitted(fitted)


def test_a_clone_has_the_parameters_and_nothing_else() -> None:
    fitted = synthesizer(outlier_epsilon=0.5).fit(frame())
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
    with pytest.raises(ConfigError, match="not fitted yet"):
        fresh.sample(1)


def test_a_second_fit_is_refused_and_spends_nothing(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=3.0, delta=1e-9))
    fitted = synthesizer(ledger=tmp_path / "ledger.db").fit(frame())
    with pytest.raises(ConfigError, match="clone it"):
        fitted.fit(frame())
    assert len(ledger.balance("data").spendings) == 1
    clone(fitted).fit(frame())
    assert len(ledger.balance("data").spendings) == 2


def test_a_fitted_one_is_not_pickled_and_says_what_to_do_instead() -> None:
    parameters = synthesizer()
    assert pickle.loads(pickle.dumps(parameters)).get_params() == parameters.get_params()
    with pytest.raises(TypeError, match=r"release_\.save"):
        pickle.dumps(synthesizer().fit(frame()))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (RepsSynthesizer(epsilon=1.0), "a schema is needed"),
        (synthesizer(epsilon=None), "exactly one of epsilon"),
        (synthesizer(model="magic"), "magic"),
    ],
)
def test_bad_parameters_are_refused_when_fitting(made: RepsSynthesizer, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made.fit(frame(10))


def test_the_label_belongs_into_the_table() -> None:
    with pytest.raises(ConfigError, match="leave y out"):
        synthesizer().fit(frame(10), frame(10)["label"])
    with pytest.raises(ValueError, match="no parameter 'colour'"):
        synthesizer().set_params(colour=1)

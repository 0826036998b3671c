"""Fetch Adult and German Credit from OpenML, once: brought into the original layout, checked, kept in a cache."""

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from repsynth.errors import ConfigError, DataError
from repsynth.storage.atomic import beside

_OPENML = {"adult": 1590, "german_credit": 31}
_DIGESTS = {
    "adult": "d965b4e0ad367e8859b976646abcc4e9d417f3cce06f2783af504d35a6e6ad96",
    "german_credit": "4a666584ade915731f901e530812bbba95ba1e6a3239d140ac03dbce045c4cc4",
}

# The columns in the original's order and, for German Credit, its codes in OpenML's words.
_ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
_CREDIT: dict[str, str | tuple[str, dict[str, str]]] = {
    "checking_status": ("checking_status", {"<0": "A11", "0<=X<200": "A12", ">=200": "A13", "no checking": "A14"}),
    "duration": "duration",
    "credit_history": (
        "credit_history",
        {
            "no credits/all paid": "A30",
            "all paid": "A31",
            "existing paid": "A32",
            "delayed previously": "A33",
            "critical/other existing credit": "A34",
        },
    ),
    "purpose": (
        "purpose",
        {
            "new car": "A40",
            "used car": "A41",
            "furniture/equipment": "A42",
            "radio/tv": "A43",
            "domestic appliance": "A44",
            "repairs": "A45",
            "education": "A46",
            "vacation": "A47",
            "retraining": "A48",
            "business": "A49",
            "other": "A410",
        },
    ),
    "credit_amount": "credit_amount",
    "savings": (
        "savings_status",
        {"<100": "A61", "100<=X<500": "A62", "500<=X<1000": "A63", ">=1000": "A64", "no known savings": "A65"},
    ),
    "employment": (
        "employment",
        {"unemployed": "A71", "<1": "A72", "1<=X<4": "A73", "4<=X<7": "A74", ">=7": "A75"},
    ),
    "installment_rate": "installment_commitment",
    "personal_status": (
        "personal_status",
        {"male div/sep": "A91", "female div/dep/mar": "A92", "male single": "A93", "male mar/wid": "A94"},
    ),
    "other_debtors": ("other_parties", {"none": "A101", "co applicant": "A102", "guarantor": "A103"}),
    "residence_since": "residence_since",
    "property": (
        "property_magnitude",
        {"real estate": "A121", "life insurance": "A122", "car": "A123", "no known property": "A124"},
    ),
    "age": "age",
    "other_installment_plans": ("other_payment_plans", {"bank": "A141", "stores": "A142", "none": "A143"}),
    "housing": ("housing", {"rent": "A151", "own": "A152", "for free": "A153"}),
    "existing_credits": "existing_credits",
    "job": (
        "job",
        {
            "unemp/unskilled non res": "A171",
            "unskilled resident": "A172",
            "skilled": "A173",
            "high qualif/self emp/mgmt": "A174",
        },
    ),
    "dependents": "num_dependents",
    "telephone": ("own_telephone", {"none": "A191", "yes": "A192"}),
    "foreign_worker": ("foreign_worker", {"yes": "A201", "no": "A202"}),
    "class": ("class", {"good": "1", "bad": "2"}),
}

Columns = dict[str, Sequence[Any]]


def cached(name: str, *, download: Callable[[int], Columns] | None = None) -> Path:
    """The path of a dataset's file in the cache; fetched first where it is not there.

    The cache is `repsynth` in XDG_CACHE_HOME, or in `~/.cache`. A file whose contents are not the
    dataset's is never used. `download` gives the columns of an OpenML dataset by its number.
    """
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repsynth" / f"{name}.csv"
    if path.is_file() and digest_of(path.read_text(encoding="utf-8")) == _DIGESTS[name]:
        return path
    columns = _from_openml(name) if download is None else download(_OPENML[name])
    text = {"adult": _adult, "german_credit": _german_credit}[name](columns)
    if digest_of(text) != _DIGESTS[name]:
        raise DataError(f"{name}: what was fetched is not the known dataset (its checksum differs); not used")
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path, replace=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def digest_of(text: str) -> str:
    """A checksum of the header and the rows of a CSV, whatever the order of the rows.

    >>> digest_of("a,b\\n1,2\\n3,4\\n") == digest_of("a,b\\n3,4\\n1,2\\n")
    True
    """
    header, *rows = text.splitlines()
    return hashlib.sha256("\n".join([header, *sorted(rows)]).encode()).hexdigest()


def _adult(columns: Columns) -> str:
    renamed = {"income" if name == "class" else name: values for name, values in columns.items()}
    return _csv({name: [_plain(value) for value in _column(renamed, name)] for name in _ADULT})


def _german_credit(columns: Columns) -> str:
    coded = {}
    for name, source in _CREDIT.items():
        column, codes = (source, {}) if isinstance(source, str) else source
        coded[name] = [codes.get(text, text) for text in map(_plain, _column(columns, column))]
    return _csv(coded)


def _column(columns: Columns, name: str) -> Sequence[Any]:
    if name not in columns:
        raise DataError(f"what was fetched has no column '{name}'; the source may have changed")
    return columns[name]


def _csv(columns: dict[str, list[str]]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "".join(f"{','.join(row)}\n" for row in [tuple(columns), *rows])


def _plain(value: Any) -> str:
    """As the original writes it: whole numbers without a point, gaps as a question mark."""
    if value is None or value != value:  # NaN is not itself
        return "?"
    if isinstance(value, str):
        return value.strip().strip("'")
    return str(int(value))


def _from_openml(name: str) -> Columns:
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise ConfigError("fetching needs scikit-learn; install it with pip install 'repsynth[paper]'") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # the error says it all
            frame = fetch_openml(data_id=_OPENML[name], as_frame=True, parser="pandas", n_retries=1).frame
    except (OSError, ValueError) as error:  # no network, or an answer that is not the dataset
        raise DataError(
            f"{name}: not on this machine, and fetching it from OpenML failed ({type(error).__name__}); "
            "give the folder of a copy as data_dir (--data-dir) or in REPSYNTH_DATA"
        ) from None
    return {str(column): frame[column].astype(object).tolist() for column in frame.columns}

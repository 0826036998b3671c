"""What the benchmarks share: splits, nearest-neighbour outliers, and train-on-synthetic test-on-real."""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from repsynth import datasets
from repsynth.schema import Schema

EPSILONS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Split:
    """56 % to learn from, 30 % to test on (the 14 % between are the paper's validation set)."""

    train: pa.Table
    test: pa.Table
    schema: Schema
    outlyingness: np.ndarray
    """Of each training record: mean distance to its ten nearest neighbours, standardised."""

    @property
    def top_decile(self) -> np.ndarray:
        """The tenth of the training records that stand out most."""
        return self.outlyingness >= np.quantile(self.outlyingness, 0.9)


def split(name: str, seed: int, data_dir: str | None) -> Split:
    dataset = datasets.load(name, data_dir=data_dir)
    table = dataset.table
    if name == "adult":
        table = complete(table)
    label = table[dataset.schema.label].to_numpy()
    rows = np.arange(table.num_rows)
    rest, test = train_test_split(rows, test_size=0.3, stratify=label, random_state=seed)
    train, _ = train_test_split(rest, test_size=0.2, stratify=label[rest], random_state=seed)
    trained = table.take(train)
    return Split(trained, table.take(test), dataset.schema, outlyingness(trained, dataset.schema))


def complete(table: pa.Table) -> pa.Table:
    """Without the records that have a "?", as the paper has it."""
    keep = pa.array(np.ones(table.num_rows, dtype=bool))
    for column in table.columns:
        if pa.types.is_string(column.type):
            keep = pc.and_(keep, pc.not_equal(column, "?"))
    return table.filter(keep)


def features(table: pa.Table, schema: Schema, reference: pa.Table) -> np.ndarray:
    """Standardised numbers (by the reference table) and one-hot categories."""
    parts = []
    for column in schema.numeric:
        values = table[column.name].to_numpy().astype(float)
        known = reference[column.name].to_numpy().astype(float)
        spread = known.std()
        parts.append(((values - known.mean()) / (spread if spread > 1e-9 else 1.0))[:, None])
    for column in schema.discrete:
        codes = pd.Categorical(table[column.name].to_pandas().astype(str), categories=column.values).codes
        parts.append(np.eye(column.cells + 1)[codes][:, :-1])
    return np.hstack(parts)


def outlyingness(table: pa.Table, schema: Schema) -> np.ndarray:
    space = features(table, schema, table).astype(np.float32)
    distance, _ = NearestNeighbors(n_neighbors=11, algorithm="brute").fit(space).kneighbors(space)
    return distance[:, 1:].mean(axis=1)


def tstr(synthetic: pa.Table, test: pa.Table, schema: Schema) -> float:
    """AUROC on real records of logistic regression trained on synthetic ones."""
    positive = schema.label_column.values[-1]

    def target(table: pa.Table) -> np.ndarray:
        return (table[schema.label].to_pandas().astype(str) == positive).to_numpy()

    if len(np.unique(target(synthetic))) < 2:
        return 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=300).fit(features(synthetic, schema, synthetic), target(synthetic))
    return float(roc_auc_score(target(test), model.decision_function(features(test, schema, synthetic))))


def kolmogorov(synthetic: pa.Table, real: pa.Table, schema: Schema) -> float:
    """Mean over numeric columns of the largest gap between the two distribution functions."""
    gaps = []
    for column in schema.numeric:
        a, b = (np.sort(table[column.name].to_numpy().astype(float)) for table in (synthetic, real))
        points = np.concatenate([a, b])
        above = np.searchsorted(a, points, "right") / len(a) - np.searchsorted(b, points, "right") / len(b)
        gaps.append(np.abs(above).max())
    return float(np.mean(gaps)) if gaps else float("nan")

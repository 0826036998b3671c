"""Simulated people, for demonstrations: columns that anybody understands, and a few who stand out."""

import numpy as np
import pyarrow as pa


def simulate_people(rows: int = 6000, *, seed: int = 0) -> pa.Table:
    """People with an age, an income, hours of work, a region, a degree and a home, owned or not.

    2 % stand out: they are old, earn much, work long, and alone live on the islands. Who owns a home depends on
    age, income and region.

    >>> simulate_people(100).column_names
    ['age', 'income', 'hours', 'region', 'degree', 'employed', 'owns_home']
    """
    generator = np.random.default_rng(seed)
    outlier = np.arange(rows) < round(0.02 * rows)
    age = np.where(outlier, generator.normal(84, 4, rows), generator.gamma(9, 5, rows))
    age = np.clip(age, 18, 95).round().astype(np.int64)
    degree = generator.choice(3, rows, p=[0.5, 0.3, 0.2])
    employed = generator.random(rows) < np.where(age < 66, 0.85, 0.12)
    employed |= outlier
    hours = np.where(employed, generator.normal(np.where(outlier, 68, 38), 5), 0)
    hours = np.clip(hours, 0, 80).round().astype(np.int64)
    level = 9.9 + 0.25 * degree + 0.45 * employed + 0.004 * (age - 40) + 1.2 * outlier
    income = np.clip(np.exp(generator.normal(level, 0.35)), 0, 200_000).round(-2).astype(np.int64)
    region = generator.choice(4, rows, p=[0.35, 0.3, 0.2, 0.15])
    region[outlier] = 4
    signal = 0.05 * (age - 45) + 0.00003 * (income - 35_000) + np.array([0.3, -0.2, 0.0, -0.6, 0.5])[region]
    owns = generator.random(rows) < 1 / (1 + np.exp(-signal))
    order = generator.permutation(rows)
    return pa.table(
        {
            "age": age[order],
            "income": income[order],
            "hours": hours[order],
            "region": np.array(["north", "south", "east", "west", "islands"])[region[order]],
            "degree": np.array(["school", "college", "university"])[degree[order]],
            "employed": employed[order],
            "owns_home": np.where(owns[order], "yes", "no"),
        }
    )

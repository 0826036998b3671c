"""The flow, start to end: each step measures once, and everything between measurements is public."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repsynth.budget import make_budget
from repsynth.cells import choose_cells
from repsynth.decode import Layout, layout_of
from repsynth.encode import EncodedTable
from repsynth.errors import ConfigError, LedgerError
from repsynth.ledger import Ledger
from repsynth.marginals import Marginals, OneWay
from repsynth.measure import Account, Count, sigma_for
from repsynth.models.marginal import measure_marginals
from repsynth.models.naive_bayes import GRID, measure_naive_bayes, planned_sensitivity
from repsynth.models.stages import Measured, StageOne, Weighted
from repsynth.noise import LARGEST_SIGMA, seeded_entropy
from repsynth.plan import SCORE_SHARES, STAGE_ONE, Plan, Settings, make_plan, paper_score_share
from repsynth.release import Release
from repsynth.schema import Schema, load_schema
from repsynth.score import make_score
from repsynth.tables import Table, check_columns, open_table
from repsynth.threshold import ScoreHistogram, choose_bins
from repsynth.weigh import FULL, RULES, Equalize, HingeExp, Random, Rule, make_weights

Steps = Callable[[str], None]


def synthesize(
    table: Any,
    schema: Schema | str | Path,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    weights: str | Rule = "targeted",
    gamma: float | None = None,
    outlier_epsilon: float | None = None,
    outlier_share: float | None = None,
    score_share: float | str | None = None,
    threshold_share: float | None = None,
    public_rows: int | None = None,
    model: str = "naive-bayes",
    max_model_mb: int | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
) -> Release:
    """A differentially private release of a table: the data is read and the budget is spent, once.

    `table` is a pandas or polars data frame, a pyarrow table, or the path of a CSV or Parquet file. The
    budget is one of `epsilon` (with `delta`), `mu` or `rho`. Settings are checked before data is opened.
    With a `ledger`, the cost is set aside in the budget of `dataset` before the data is opened.

    >>> import pyarrow as pa
    >>> from repsynth.schema import parse_schema
    >>> people = pa.table({"age": [30, 41, 55] * 300, "smoker": [True, False, False] * 300})
    >>> schema = parse_schema('''
    ... label = "smoker"
    ... columns.age = {type = "integer", min = 18, max = 99}
    ... columns.smoker = {type = "boolean"}
    ... ''')
    >>> release = synthesize(people, schema, epsilon=2.0, delta=1e-6)
    >>> release.privacy.epsilon <= 2.0
    True
    >>> release.sample(5).column_names
    ['age', 'smoker']
    """
    settings = make_settings(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        weights=weights,
        gamma=gamma,
        outlier_epsilon=outlier_epsilon,
        outlier_share=outlier_share,
        score_share=score_share,
        threshold_share=threshold_share,
        public_rows=public_rows,
        model=model,
        max_model_mb=max_model_mb,
    )
    if not isinstance(schema, Schema | str | Path):
        raise ConfigError("the schema must be a Schema, or the path of a schema.toml")
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    plan = make_plan(schema, settings)
    return run(plan, open_table(table), payer=open_payer(ledger, dataset))


def make_settings(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    weights: str | Rule = "targeted",
    gamma: float | None = None,
    outlier_epsilon: float | None = None,
    outlier_share: float | None = None,
    score_share: float | str | None = None,
    threshold_share: float | None = None,
    public_rows: int | None = None,
    model: str = "naive-bayes",
    max_model_mb: int | None = None,
) -> Settings:
    """The settings of a run from the values a user gives; None means the default."""
    budget = make_budget(epsilon=epsilon, mu=mu, rho=rho, delta=delta, public_rows=public_rows)
    if score_share == "tenth-of-epsilon":
        score_share = paper_score_share(budget)
    elif isinstance(score_share, str):
        raise ConfigError("the score share must be a number or 'tenth-of-epsilon'")
    elif score_share is None:
        score_share = SCORE_SHARES.get(model)
    given = {
        "outlier_epsilon": outlier_epsilon,
        "outlier_share": outlier_share,
        "score_share": score_share,
        "threshold_share": threshold_share,
        "public_rows": public_rows,
        "max_model_mb": max_model_mb,
    }
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Settings(budget=budget, rule=_rule(weights, gamma), model=model, **chosen)


@dataclass(frozen=True)
class Payer:
    """A dataset's budget in a ledger."""

    ledger: Ledger
    dataset: str


def open_payer(ledger: str | Path | Ledger | None, dataset: str | None) -> Payer | None:
    """The budget to spend from, checked to exist; None where no ledger is kept."""
    if ledger is None:
        if dataset is not None:
            raise ConfigError("a dataset's name means something in a ledger only; name the ledger, too")
        return None
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    return Payer(opened, dataset if dataset is not None else opened.only_dataset())


def run(
    plan: Plan,
    table: Table,
    *,
    on_step: Steps = lambda step: None,
    payer: Payer | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Carry out a plan. `noise_seed` makes the noise repeatable and the release not private: experiments only.

    Whatever goes wrong after the cost was reserved counts as spent.
    """
    check_columns(table, plan.schema)
    layout = layout_of(table, plan.schema)
    if max(_largest_sigma(plan, name) for name in plan.charges) > LARGEST_SIGMA:
        raise ConfigError("the noise for so small a budget does not fit 64-bit integers; give a larger one")
    if payer is None:
        return _measure(plan, table, layout, on_step, noise_seed)
    what = f"{plan.settings.model}, {plan.rule.name} weights, ε = {plan.settings.budget.epsilon:.4g}"
    ticket = payer.ledger.reserve(payer.dataset, plan.charges, what=what)
    release = _measure(plan, table, layout, on_step, noise_seed)
    # The cost is reserved, so an entry that cannot be closed counts as spent; the release must not be lost.
    with contextlib.suppress(LedgerError):
        payer.ledger.commit(payer.dataset, ticket)
    return release


def _measure(plan: Plan, table: Table, layout: Layout, on_step: Steps, noise_seed: int | None) -> Release:
    """The flow itself."""
    schema, settings = plan.schema, plan.settings
    data = EncodedTable(table, schema)
    account = Account(settings.budget.mu, entropy=os.urandom if noise_seed is None else seeded_entropy(noise_seed))

    rows = float(settings.public_rows or 0)
    if settings.public_rows is None:
        on_step("size")
        rows = max(1.0, float(account.measure(Count(), data, mu=plan.charges["size"])[0]))

    on_step("score")
    sigma = sigma_for(len(schema.learned) ** 0.5, plan.charges["score"])
    naive_bayes = settings.model == "naive-bayes"
    cells = choose_cells(schema, rows=rows, sigma=sigma, fine=not naive_bayes)
    counts = account.measure(OneWay(cells), data, mu=plan.charges["score"])
    marginals = Marginals(cells, counts, sigma, rows)
    score = make_score(marginals, schema.label, random=isinstance(plan.rule, Random))

    threshold = None
    if "threshold" in plan.charges:
        on_step("threshold")
        sigma = sigma_for(ScoreHistogram.sensitivity, plan.charges["threshold"])
        bins = choose_bins(score, marginals, sigma=sigma)
        noisy = account.measure(ScoreHistogram(score, bins.edges), data, mu=plan.charges["threshold"])
        threshold = bins.threshold(noisy, share=settings.outlier_share, rows=rows, sigma=sigma)
    weights = make_weights(
        plan.rule,
        threshold=threshold.value if threshold else score.lowest,
        lowest=score.lowest,
        ceiling=plan.ceiling,
    )

    stage = StageOne(schema, marginals, score, threshold, weights)
    measured: tuple[Measured[Weighted], ...]
    if naive_bayes:
        on_step("synthesis")
        equalize = isinstance(plan.rule, Equalize)
        measured = (measure_naive_bayes(account, data, stage, plan.charges["synthesis"], equalize=equalize),)
    else:
        most = settings.max_model_mb * 2**20 // 16  # the tables and what is expected of them
        measured = measure_marginals(account, data, stage, plan.charges, max_cells=most, on_step=on_step)
    return Release(
        stage=stage,
        layout=layout,
        settings=settings,
        events=tuple(account.events),
        measured=measured,
        private=noise_seed is None,
    )


def _largest_sigma(plan: Plan, name: str) -> float:
    """The noise of a measurement at most, in grid units."""
    columns = len(plan.schema.learned)
    unit = planned_sensitivity(plan.schema) * GRID if plan.settings.model == "naive-bayes" else FULL * columns
    return (columns if name in STAGE_ONE else unit) / plan.charges[name]


def _rule(weights: str | Rule, gamma: float | None) -> Rule:
    if not isinstance(weights, str):
        return weights
    if weights not in RULES:
        raise ConfigError(f"unknown weights '{weights}'; use one of {', '.join(RULES)}")
    if gamma is None:
        return RULES[weights]()
    if weights != "hinge-exp":
        raise ConfigError(f"gamma belongs to hinge-exp weights; {weights} has none")
    return HingeExp(gamma=gamma)

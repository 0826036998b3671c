"""The flow, start to end: each step measures once, and everything between measurements is public."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from repsynth.budget import make_budget
from repsynth.cells import choose_cells
from repsynth.checkpoint import Checkpoint, Ticket, begin, find, held, remove
from repsynth.cost import STAGE_ONE
from repsynth.decode import Layout, layout_of
from repsynth.encode import EncodedTable
from repsynth.errors import ConfigError, LedgerError
from repsynth.ledger import Ledger
from repsynth.marginals import Marginals, OneWay
from repsynth.measure import Account, Count, sigma_for
from repsynth.models.marginal import measure_marginals
from repsynth.models.naive_bayes import GRID, measure_naive_bayes, planned_sensitivity
from repsynth.models.network import Network, Trained
from repsynth.models.stages import Measured, StageOne, Weighted
from repsynth.models.training import neural_libraries
from repsynth.noise import LARGEST_SIGMA, SampledEvent, seeded_entropy
from repsynth.plan import SCORE_SHARES, Plan, Settings, make_plan, paper_score_share
from repsynth.release import Release
from repsynth.schema import Schema, load_schema
from repsynth.score import make_score
from repsynth.tables import Table, check_columns, open_table
from repsynth.threshold import ScoreHistogram, choose_bins
from repsynth.train import OnRound, train
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
    epochs: float | None = None,
    sampling_rate: float | None = None,
    checkpoint: str | Path | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
) -> Release:
    """A differentially private release of a table: the data is read and the budget is spent, once.

    `table` is a pandas or polars data frame, a pyarrow table, or the path of a CSV or Parquet file. The
    budget is one of `epsilon` (with `delta`), `mu` or `rho`. Settings are checked before data is opened.
    With a `ledger`, the cost is set aside in the budget of `dataset` before the data is opened. A model that is
    trained can be given a folder for its `checkpoint`: the same call goes on from there if it was killed, and
    removes the folder when it is done.

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
        epochs=epochs,
        sampling_rate=sampling_rate,
    )
    if not isinstance(schema, Schema | str | Path):
        raise ConfigError("the schema must be a Schema, or the path of a schema.toml")
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    plan = make_plan(schema, settings)
    if not isinstance(checkpoint, str | Path | None):
        raise ConfigError("the checkpoint must be the path of a folder")
    folder = None if checkpoint is None else Path(checkpoint)
    release = run(plan, open_table(table), payer=open_payer(ledger, dataset), checkpoint=folder)
    if folder is not None:
        remove(folder)
    return release


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
    epochs: float | None = None,
    sampling_rate: float | None = None,
) -> Settings:
    """The settings of a run from the values a user gives; None means the default."""
    budget = make_budget(epsilon=epsilon, mu=mu, rho=rho, delta=delta, public_rows=public_rows)
    if model == "neural" and epsilon is None:
        raise ConfigError(
            "what training costs has no exact mu or rho; give the budget of a neural model as epsilon"
        )
    if model != "neural" and (epochs is not None or sampling_rate is not None):
        raise ConfigError(f"epochs and sampling rate belong to the model neural; {model} is not trained")
    if not all(value is None or isinstance(value, float | int) for value in (epochs, sampling_rate)):
        raise ConfigError("epochs and sampling rate must be numbers")
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
        "epochs": epochs,
        "sampling_rate": sampling_rate,
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
    on_round: OnRound = lambda done: None,
    payer: Payer | None = None,
    noise_seed: int | None = None,
    checkpoint: Path | None = None,
) -> Release:
    """Carry out a plan. `noise_seed` makes the noise repeatable and the release not private: experiments only.

    Whatever goes wrong after the cost was reserved counts as spent, but a training with a `checkpoint` can go on.
    """
    check_columns(table, plan.schema)
    layout = layout_of(table, plan.schema)
    if max(_largest_sigma(plan, name) for name in plan.charges) > LARGEST_SIGMA:
        raise ConfigError("the noise for so small a budget does not fit 64-bit integers; give a larger one")
    if plan.training is not None:
        neural_libraries()  # they must be there before anything is spent
    if checkpoint is not None and (plan.training is None or noise_seed is not None or plan.rule.name not in RULES):
        raise ConfigError("only the model neural takes a checkpoint, with weights of a named kind and fresh noise")
    with held(checkpoint) if checkpoint else contextlib.nullcontext():
        found = find(checkpoint) if checkpoint else None
        if found is not None:
            found = _resumed(found, plan, layout, payer)
        ticket = found.ticket if found else None
        if payer is not None and ticket is None:
            what = f"{plan.settings.model}, {plan.rule.name} weights, ε = {plan.settings.budget.epsilon:.4g}"
            run = payer.ledger.reserve(payer.dataset, plan.charges, what=what, training=plan.training)
            ticket = Ticket(payer.dataset, run)
        flow = _Flow(plan, EncodedTable(table, plan.schema), layout, on_step, on_round, noise_seed)
        ledger = payer.ledger if payer else None
        release = flow.go_on(found) if found else flow.start(checkpoint, ticket, ledger)
        # The cost is reserved, so an entry that cannot be closed counts as spent; the release must not be lost.
        if payer is not None and ticket is not None:
            with contextlib.suppress(LedgerError):
                if payer.ledger.holder(ticket.dataset, ticket.run) == ticket.token:  # never another one's run
                    payer.ledger.commit(ticket.dataset, ticket.run)
        return release


def _resumed(found: Checkpoint, plan: Plan, layout: Layout, payer: Payer | None) -> Checkpoint:
    """The checkpoint, claimed by this process. It goes on only as what it began as, and only if its run is still
    open in its ledger and has not gone on elsewhere. Where all rounds are done, nothing more will be drawn."""
    release, folder = found.release, found.folder
    began, now = release.settings, plan.settings
    other = [field.name for field in fields(Settings) if getattr(began, field.name) != getattr(now, field.name)]
    other += ["schema"] if release.schema != plan.schema else []
    other += ["columns of the table"] if release.layout != layout else []
    if other:
        raise ConfigError(
            f"{folder}: holds a training with another {', '.join(other).replace('_', ' ')}; go on with the "
            "same, or remove the folder to start anew (what it spent stays spent)"
        )
    if found.ticket is None:
        return found
    if payer is None or payer.dataset != found.ticket.dataset:
        raise ConfigError(f"{folder}: this training is paid from a ledger; name its ledger and dataset again")
    if found.state.round == release.training.rounds:
        return found
    return replace(found, ticket=found.ticket.claimed(payer.ledger, folder), ledger=payer.ledger)


@dataclass(frozen=True)
class _Flow:
    """The flow itself: stage 1, then the model's part."""

    plan: Plan
    data: EncodedTable
    layout: Layout
    on_step: Steps
    on_round: OnRound
    noise_seed: int | None

    def start(self, checkpoint: Path | None, ticket: Ticket | None, ledger: Ledger | None) -> Release:
        """From the first measurement on."""
        plan, settings, account = self.plan, self.plan.settings, self._account()
        stage = self._stage_one(account)
        measured: tuple[Measured[Weighted], ...] = ()
        if settings.model == "naive-bayes":
            self.on_step("synthesis")
            equalize = isinstance(plan.rule, Equalize)
            charge = plan.charges["synthesis"]
            measured = (measure_naive_bayes(account, self.data, stage, charge, equalize=equalize),)
        elif settings.model != "neural":
            most = settings.max_model_mb * 2**20 // 16  # the tables and what is expected of them
            measured = measure_marginals(
                account, self.data, stage, plan.charges, max_cells=most, on_step=self.on_step
            )
        release = Release(
            stage=stage,
            layout=self.layout,
            settings=settings,
            events=tuple(account.events),
            measured=measured,
            private=self.noise_seed is None,
        )
        if plan.training is None:
            return release
        self.on_step(plan.training.name)
        network = Network.of(stage)
        untrained = Trained(network, np.zeros(network.size))
        release = replace(release, events=(*release.events, plan.training), trained=untrained)
        kept = begin(checkpoint, release, ticket, ledger) if checkpoint else None
        return train(account, self.data, release, kept, self.on_round)

    def go_on(self, found: Checkpoint) -> Release:
        """From a checkpoint on: stage 1 is there, and so are some rounds of training."""
        account = self._account()
        account.events = [event for event in found.release.events if not isinstance(event, SampledEvent)]
        for step in self.plan.steps:
            self.on_step(step)
        return train(account, self.data, found.release, found, self.on_round)

    def _account(self) -> Account:
        budget = self.plan.settings.budget
        entropy = os.urandom if self.noise_seed is None else seeded_entropy(self.noise_seed)
        return Account(budget.mu, entropy=entropy, delta=budget.delta)

    def _stage_one(self, account: Account) -> StageOne:
        """Histograms, scores, threshold and weights."""
        plan, schema, settings, data = self.plan, self.plan.schema, self.plan.settings, self.data
        rows = float(settings.public_rows or 0)
        if settings.public_rows is None:
            self.on_step("size")
            rows = max(1.0, float(account.measure(Count(), data, mu=plan.charges["size"])[0]))

        self.on_step("score")
        sigma = sigma_for(len(schema.learned) ** 0.5, plan.charges["score"])
        cells = choose_cells(schema, rows=rows, sigma=sigma, fine=settings.model != "naive-bayes")
        counts = account.measure(OneWay(cells), data, mu=plan.charges["score"])
        marginals = Marginals(cells, counts, sigma, rows)
        score = make_score(marginals, schema.label, random=isinstance(plan.rule, Random))

        threshold = None
        if "threshold" in plan.charges:
            self.on_step("threshold")
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
        return StageOne(schema, marginals, score, threshold, weights)


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

"""Whether the charges of a release are those that its settings say.

Their sum alone does not tell: what every record pays in full decides what an outlier loses, and a file that
claimed less of it and more of what is weighted would claim a smaller loss.
"""

import math

from repsynth.models.fine import FINE
from repsynth.planning.plan import SPLIT, Plan, make_charges, score_share_of
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import Charge
from repsynth.privacy.gaussian import compose
from repsynth.scoring.stage import COUNT, SCORES
from repsynth.storage.checks import require

_CLOSE = 1e-6
_ONCE = {"naive-bayes": 0.05, "mst": 0.1, "aim": 0.1, "autoregressive": 0.1}
"""The score shares of the models in versions that split otherwise."""
_BEFORE = (None, 1)
"""The ways to split that these had; the first of them did not write it."""


def check_split(plan: Plan, *, scored: bool) -> None:
    """Refuse charges that are not those of the settings: each of them where they are split as today, else what all
    records pay in full and, where the version said how it split, the whole."""
    charges, settings, budget = plan.charges, plan.settings, plan.budget
    if plan.split == SPLIT:
        again = make_charges(plan.schema, settings, budget, scored=scored)
        same = again.keys() == charges.keys() and all(_same(charges[name], again[name]) for name in again)
        require(same, "its charges are not its settings'")
        return
    require(plan.split in _BEFORE, "its budget was split in a way that this version does not know")
    require(FINE not in charges, "it has a measurement that its version did not know")
    if plan.split is not None and plan.training is None:
        whole = compose(charge.mu for charge in charges.values())
        require(math.isclose(whole, budget.mu, rel_tol=_CLOSE), "its charges are not its budget's")
    full = {name: charge.mu for name, charge in charges.items() if not charge.weighted}
    given = {COUNT: settings.count_share, SCORES: settings.threshold_share}
    for name, share in given.items():
        paid = full.pop(name, None)
        require(paid is None or _is_share(paid, share, budget), "its charges are not its settings'")
    assert settings.model is not None  # checked before
    default = _ONCE.get(settings.model.name, settings.model.score_share)
    share = score_share_of(settings, budget, default)
    require(_is_share(compose(full.values()), share, budget), "its charges are not its settings'")


def _same(one: Charge, other: Charge) -> bool:
    alike = (one.weighted, one.choice) == (other.weighted, other.choice)
    return alike and math.isclose(one.mu, other.mu, rel_tol=_CLOSE)


def _is_share(mu: float, share: float, budget: Budget) -> bool:
    return math.isclose(mu, budget.mu * math.sqrt(share), rel_tol=_CLOSE)

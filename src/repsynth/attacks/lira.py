"""Likelihood ratios learnt from other runs (LiRA: Carlini et al. 2022). One half of the runs shows, for each
target, what scores look like with it and without it; the other half is judged, and the other way round.

The scores of a target are Gaussian with a common spread. Several scores are combined by Fisher's direction, which
is common to all targets. How far a target's presence moves it is shrunk towards the mean of its decile.
"""

from collections.abc import Sequence

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.targets import half_of


def likelihood_ratios(scores: Sequence[Floats], present: Bools, deciles: Ints) -> Floats:
    """Return log-likelihood ratios from several scores, all of shape (runs, targets). NaN where a target never
    took part in one half of the runs, or always did."""
    features = np.stack(scores)
    second = half_of(np.arange(len(present)))
    found = np.full(present.shape, np.nan)
    for judged in (second, ~second):
        found[judged] = _judge(features, present, deciles, judged)
    return found


def _judge(features: Floats, present: Bools, deciles: Ints, judged: Bools) -> Floats:
    taught, inside = features[:, ~judged], present[~judged]
    ins, outs = inside.sum(axis=0), (~inside).sum(axis=0)  # (targets,)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_in = np.where(inside, taught, 0.0).sum(axis=1) / ins  # (features, targets)
        mean_out = np.where(inside, 0.0, taught).sum(axis=1) / outs
    residual = taught - np.where(inside, mean_in[:, None], mean_out[:, None])
    moved = mean_in - mean_out
    freedom = np.maximum(ins + outs - 2, 1)
    spread = np.sqrt((residual**2).sum(axis=1) / freedom)
    spread = np.maximum(spread, 1e-6 * np.abs(moved)) + 1e-300
    learnt = (ins > 1) & (outs > 1) & np.all(np.isfinite(moved), axis=0)
    if not learnt.any():
        return np.full((int(judged.sum()), present.shape[1]), np.nan)
    effect = moved / spread
    z = (features[:, judged] - ((mean_in + mean_out) / 2)[:, None]) / spread[:, None]

    units = (residual / spread[:, None])[:, :, learnt].reshape(len(features), -1)
    covariance = units @ units.T / units.shape[1] + 1e-3 * np.eye(len(features))
    # The mean effect of each score, without the few largest: where there is no noise, one may be boundless.
    bound = 10 * np.median(np.abs(effect[:, learnt]), axis=1, keepdims=True) + 1e-12
    direction = np.linalg.solve(covariance, np.clip(effect[:, learnt], -bound, bound).mean(axis=1))
    variance = max(float(direction @ covariance @ direction), 1e-300)
    own = direction @ effect  # (targets,)
    error = variance * (1 / np.maximum(ins, 1) + 1 / np.maximum(outs, 1))
    own = _shrunk(own, error, deciles, learnt)
    ratios = np.einsum("f,frt->rt", direction, z) * own / variance
    return np.where(learnt, ratios, np.nan)


def _shrunk(own: Floats, error: Floats, deciles: Ints, learnt: Bools) -> Floats:
    """Empirical Bayes within each decile."""
    result = own.copy()
    for decile in np.unique(deciles):
        group = (deciles == decile) & learnt
        if group.sum() < 2:
            continue
        mean = own[group].mean()
        signal = max(float(own[group].var(ddof=1) - error[group].mean()), 0.0)
        share = signal / np.maximum(signal + error[group], 1e-300)
        result[group] = mean + share * (own[group] - mean)
    return result

"""Stage 2: what a model measures, and the model that follows.

base          what a model and a fit are
registry      all models by name
clipping      contributions clipped to their norm, in whole numbers
completing    conditional sampling: the columns that are not given
uncertainty   standard errors of the tables that were measured
naive_bayes   weighted clipped sums by label
marginal      `mst` and `aim`: weighted tables, and which
network       an autoregressive network, trained by risk-weighted DP-SGD
"""

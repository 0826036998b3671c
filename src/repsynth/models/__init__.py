"""Stage 2: what a model measures, and the model that follows.

base          what a model and a fit are
registry      all models by name
sampling      draws that several models share
naive_bayes   weighted clipped sums by label
marginal      `mst` and `aim`: weighted two-way tables, and which
network       an autoregressive network, trained by risk-weighted DP-SGD
"""

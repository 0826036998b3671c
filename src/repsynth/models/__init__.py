"""Stage 2: what a model measures, and the model that follows.

base          what a model and a fit are
registry      all models by name
groups        bins taken together where noise drowns them
sampling      draws that several models share, in even quotas;  shapes: from groups to codes
fine          how numbers are spread inside the bins of the histograms: a measurement of its own
clipping      contributions cut to their norm, in whole numbers
naive_bayes   weighted clipped sums by label
marginal      `mst` and `aim`: weighted tables, and which
network       an autoregressive network, trained by risk-weighted DP-SGD
"""

"""Stage 2: what a model measures, and the model that follows.

stages        what stage 1 hands over, and what a measurement leaves behind
naive_bayes   weighted clipped sums by label
marginal      `mst` and `aim`: which two-way tables are measured, in what order
groups        cells taken together until they stand above the noise
tables        weighted tables, and the choice between them
tree          a consistent tree of tables;  pool: records weighted to agree with further tables
network       an autoregressive network, and drawing from it
training      its rounds of risk-weighted DP-SGD, with JAX
"""

"""Stage 2: models, their measurements, and the samplers that are fitted to them.

base          the interface of models, and clipping in whole numbers
registry      all models by name
completing    conditional sampling
uncertainty   standard errors of measured tables
naive_bayes   conditional Gaussian naive Bayes (REPS, instantiation A)
marginal      MST and AIM with risk weights
network       an autoregressive network, and dp_sgd, its training by risk-weighted DP-SGD (REPS, instantiation B)
"""

"""Instantiation A: a conditional Gaussian naive Bayes model from weighted clipped statistics.

model       its plan, its measurement, its files
statistic   what a record contributes
fit         the model that follows from the noisy sums
"""

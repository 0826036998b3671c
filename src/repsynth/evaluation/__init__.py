"""Measure what a synthetic table is good for. PRIVATE: everything here is computed from data.

inputs      open and check the tables
fidelity    distances, associations, coverage, repeated and copied rows
prediction  train on synthetic and test on real; propensity; coefficients
subgroups   utility by subgroup and by decile of outlyingness
matrix      records as numbers, codes and labels, and the space that classifiers and attacks use
nearest     distances to nearest neighbours: membership attacks and outlyingness
measures    a measure: value, best, what two real halves give, parts
evaluate    all measures of a table
written     the folder of an evaluation
"""

"""Marginal models, `mst` and `aim`: weighted two-way tables, and the model that follows from them.

model    their plans, measurements and files
rounds   which tables are measured, in what order
tables   the statistic, and the choice between tables
views    columns in fine and in coarse groups
tree     a consistent tree of tables;  raked: records with masses that agree with further tables
fit      from noisy tables to the model
"""

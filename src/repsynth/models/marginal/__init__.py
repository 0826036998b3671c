"""Marginal models, `mst` and `aim`: weighted tables, and the model that follows from them.

model          their plans and measurements;  files: how they are read back
rounds         which tables are measured, in what order
label_tables   the statistic of label × column;  tables: that of columns, and the choice between tables
views          columns in fine and in coarse groups
mean_weights   what a record counts for in a cell, so that tables can be scaled back up
shrinkage      how much of a noisy table to believe
tree           a consistent tree of tables;  raked: records with masses that agree with further tables
fit            from noisy tables to the model
"""

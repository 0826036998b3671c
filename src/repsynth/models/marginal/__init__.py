"""MST and AIM with risk weights.

mechanism           both algorithms: select, measure, estimate
model               their settings, plans and costs
statistics          weighted tables, and the selection between tables
tree, pool          the fitted models: a tree of tables, and a pool of records raked to further tables
weight_correction   mean weights, by which tables are scaled up
release             the noisy tables, and their files
"""

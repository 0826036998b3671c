"""Plan a run before any data is opened: what it measures and what it costs.

settings   the settings of a run, as keywords and in plan.toml
plan       the charges of a run, its weight rule and its training
warnings   warnings about a plan, with remedies
"""

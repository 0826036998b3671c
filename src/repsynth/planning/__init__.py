"""What a run will measure and what it will cost, worked out before any data is opened.

settings   the knobs: Python keywords, flags and plan.toml follow from them
choose     which model, where none is named
plan       the charges of a run, its weight rule and its training
settings_file   settings as `plan.toml`
cautions   what a user should know of a plan, in words
"""

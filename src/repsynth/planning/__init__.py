"""What a run will measure and what it will cost, worked out before any data is opened.

settings   Python keywords, flags and plan.toml follow from them
plan       the charges of a run, its weight rule and its training
warnings   what a user should know of a plan, in words
"""

"""Models that a release can be made with: a statistic to measure, and what to fit to it."""

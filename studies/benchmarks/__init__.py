"""Benchmarks. Each module is one command; README.md lists them with their current results."""

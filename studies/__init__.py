"""Research beside the package: the paper's study and the benchmarks. None of it is in the wheel.

Run it from the root of the repository: `python -m studies.paper`, `python -m studies.benchmarks.protection`.
"""

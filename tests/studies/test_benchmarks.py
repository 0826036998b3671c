"""The README of the benchmarks shows the stored results."""

from studies.benchmarks import readme


def test_the_readme_is_what_the_stored_results_say() -> None:
    told = readme.README.read_text(encoding="utf-8")
    assert told == readme.text(), "run python -m studies.benchmarks.readme"
    assert {path.stem for path in (readme.FOLDER / "results").glob("*.json")} == set(readme.RESULTS)

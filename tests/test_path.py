"""A maintainer can follow a run: it passes through few modules."""

import pytest
import tracing


@pytest.mark.parametrize(("model", "modules", "switches"), [("naive-bayes", 55, 960), ("aim", 60, 2600)])
def test_a_run_passes_through_few_modules(model: str, modules: int, switches: int) -> None:
    found = tracing.trace(model)
    assert len(found.modules) <= modules, found.modules
    assert found.switches <= switches

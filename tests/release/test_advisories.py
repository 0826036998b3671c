"""The changelog tells who is affected by a wrong guarantee and what to do: what it says to run does run."""

import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CHANGELOG = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_true_cost_of_rounds_drawn_twice_can_be_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CHECKOUT / "tests" / "releases" / "0.1.0" / "neural-targeted"
    shutil.copytree(kept, tmp_path / "release")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", CHANGELOG, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(textwrap.dedent(f"   {code.strip()}"), "CHANGELOG.md", "exec"), names)
    claimed = names["release"].privacy.epsilon
    assert 1.2 * claimed < names["true_epsilon"] < 2 * claimed


def test_security_points_to_what_is_there() -> None:
    text = (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8")
    (anchor,) = re.findall(r"CHANGELOG\.md#([a-z-]+)", text)
    headings = re.findall(r"^#+ (.*)$", CHANGELOG, flags=re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-") for heading in headings}

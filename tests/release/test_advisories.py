"""The advisories page tells who is affected by a wrong guarantee and what to do."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PARTS = ["Affected", "How to tell", "True guarantee", "What to do"]


def test_every_advisory_has_its_four_parts() -> None:
    page = (CHECKOUT / "docs" / "advisories.md").read_text(encoding="utf-8")
    advisories = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    assert len(advisories) >= 15
    for advisory in advisories:
        assert re.findall(r"^- \*\*([^*]+)\*\*: ", advisory, flags=re.MULTILINE) == PARTS, advisory


def test_security_and_changelog_point_to_the_advisories() -> None:
    for name in ("SECURITY.md", "CHANGELOG.md"):
        assert "(docs/advisories.md)" in (CHECKOUT / name).read_text(encoding="utf-8")

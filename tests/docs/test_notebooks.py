"""The notebooks run, and print what is kept in them."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from written import DOCS

sys.path.insert(0, str(DOCS / "_site"))
import notebooks

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def printed(outputs: list[dict[str, Any]]) -> str:
    """What a cell shows as text, and how many figures it draws."""
    texts = ["".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in outputs]
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    return "\n".join([*texts, f"{figures} figures"])


def words(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


@pytest.mark.notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_kept_in_it(path: Path) -> None:
    """From the same seed, up to how processors round. If it fails, `make notebooks` runs them again."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if path.stem == "credit" and not os.environ.get("REPSYNTH_DATA"):
        pytest.skip("needs german_credit.csv: name its folder in REPSYNTH_DATA")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, notebooks.run(notebook), strict=True):
        kept, now = printed(cell["outputs"]), printed(outputs)
        assert words(kept) == words(now), notebooks.source_of(cell)
        pairs = zip(NUMBER.findall(kept), NUMBER.findall(now), strict=True)
        assert all(close(a, b) for a, b in pairs), (notebooks.source_of(cell), kept, now)


def close(kept: str, now: str) -> bool:
    """But for a last digit or two."""
    a, b = (float(text.replace(",", "")) for text in (kept, now))
    return a == b or abs(a - b) <= 0.02 + 0.02 * abs(a)


def test_notebooks_are_whole_and_tell_nothing_of_a_machine() -> None:
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        assert notebook["nbformat"] == 4, path
        assert not re.search(r"/(tmp|home|root|work|Users|var)/", text), path
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert cell["execution_count"] is None, path
                assert all(output["output_type"] != "error" for output in cell["outputs"]), path
                drawn = any("image/png" in output.get("data", {}) for output in cell["outputs"])
                assert not drawn or cell["metadata"]["alt"], path  # said in words, for those who do not see it
        assert any(cell.get("outputs") for cell in notebook["cells"]), path


def test_a_cell_keeps_what_it_prints_and_its_last_value() -> None:
    cells = [{"cell_type": "code", "source": [line]} for line in ("a = 2\nprint('one')", "a + 1", "a = None\na")]
    one, two, three = notebooks.run({"cells": cells})
    assert one == [{"output_type": "stream", "name": "stdout", "text": ["one\n"]}]
    assert two[0]["data"] == {"text/plain": ["3"]}
    assert three == []


def test_a_page_shows_text_as_text() -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": ["print('<b>')"], "outputs": []}
    cell["outputs"] = notebooks.run({"cells": [cell]})[0]
    page = notebooks.to_markdown(json.dumps({"cells": [cell]}))
    assert "<pre>&lt;b&gt;</pre>" in page

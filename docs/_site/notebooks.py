"""Notebooks without Jupyter: run their cells, keep their outputs, show them as a page.

    python docs/_site/notebooks.py docs/notebooks/*.ipynb     run them, and keep what they print and draw

Cells run one after the other in one process, as a kernel would run them, in a folder that is thrown away. What a
cell prints is kept, the value of its last line, and its figures. Here noise and draws come from a seed, so that a
test can run them again and compare: the tables are simulated or public. Whoever runs a notebook gets fresh noise.
"""

import ast
import base64
import contextlib
import html
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from repsynth.run import run as pipeline

Cell = dict[str, Any]


def run(notebook: dict[str, Any]) -> list[list[Cell]]:
    """The outputs of every cell of code, in their order."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with _own_folder(), _seeded():
        return [_run_cell(cell, names) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_of(cell: Cell) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def _run_cell(cell: Cell, names: dict[str, Any]) -> list[Cell]:
    tree = ast.parse(source_of(cell))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[Cell] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs + [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}} for picture in _figures()
    ]


def _figures() -> Iterator[str]:
    """The figures that a cell has drawn."""
    if "matplotlib.pyplot" not in sys.modules:
        return
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=110, bbox_inches="tight")
        yield base64.b64encode(file.getvalue()).decode()
    pyplot.close("all")


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"MPLBACKEND": "agg"}):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """The same noise and the same draws every time: each run has its own seed, whatever else has drawn before."""
    make_generator, run_plan, seeds = np.random.default_rng, pipeline.run, count(1000)

    def seeded_run(*arguments: Any, **options: Any) -> Any:
        return run_plan(*arguments, **options, noise_seed=next(seeds))

    def seeded_generator(seed: Any = None) -> np.random.Generator:
        return make_generator(0 if seed is None else seed)

    with (
        mock.patch.object(pipeline, "run", seeded_run),
        mock.patch.object(np.random, "default_rng", seeded_generator),
    ):
        yield


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def to_markdown(text: str) -> str:
    """A notebook as the Markdown of a page."""
    parts = []
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source_of(cell))
        else:
            parts.append(f"```python\n{source_of(cell)}\n```")
            parts += [_shown(output, cell["metadata"].get("alt", "")) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _shown(output: Cell, alt: str) -> str:
    if output["output_type"] == "stream":
        return _block("".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data["image/png"]}">'
    return _block("".join(data["text/plain"]))


def _block(text: str) -> str:
    return f'<div class="notebook-output highlight"><pre>{html.escape(text.rstrip())}</pre></div>'


def keep(path: Path) -> None:
    """Run a notebook and write what came out into it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, run(notebook), strict=True):
        cell["outputs"] = outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        keep(Path(name).resolve())
        print(f"{name}: run, outputs kept")

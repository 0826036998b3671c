"""Columns of codes of which the file itself says what they stand for, as those of statistics programs do."""

from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools
from repsynth.curator.decision import Decision
from repsynth.curator.look import Look, quoted, some

_DECLARED = "# as the file declares them: confirm or replace"


def decide_labelled(look: Look, labels: Mapping[str, str], decide: Callable[[Look], Decision]) -> Decision:
    """A category of all codes that have a label, whether they occur or not; where others occur, too, what these
    are, and the codes as special values of a number.

    >>> look = Look.of("sex", pa.chunked_array([[1.0, 2.0, 2.0]]))
    >>> decide_labelled(look, {"1": "male", "2": "female", "3": "other"}, decide=None).lines[1:4]
    ('  "1",   # male', '  "2",   # female', '  "3",   # other')
    """
    unknown = np.array([text not in labels for text in look.texts], dtype=np.bool_)
    if not unknown.any():
        lines = [f"values = [   {_DECLARED}", *(f"  {quoted(c)},   # {_plain(t)}" for c, t in labels.items()), "]"]
        missing = ["missing = true"] if look.cells < look.rows else []
        reason = f"{some(len(labels), 'code')} with a label in the file"
        return Decision(look.name, "category", reason, (), (*lines, *missing))
    others = decide(_only(look, unknown))
    codes = [code for code in labels if others.type in ("integer", "number")]
    if not codes:
        return decide(look)
    kept = [line for line in others.lines if not line.startswith("special")]
    meaning = "; ".join(f"{quoted(code)}: {_plain(labels[code])}" for code in codes)
    special = f"special = [{', '.join(map(quoted, codes))}]   {_DECLARED}"
    reason = f"{others.reason}; codes with a label in the file, kept as special: {meaning}"
    return msgspec.structs.replace(others, reason=reason, lines=(*kept, special))


def _only(look: Look, which: Bools) -> Look:
    """The column as if it had some of its values only."""
    return Look(look.name, look.type, look.values.filter(pa.array(which)), look.counts[which], look.codes)


def _plain(label: str) -> str:
    """A label on one line, for a comment."""
    return quoted(" ".join(label.split()))[1:-1]

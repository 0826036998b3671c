"""Work out the grid of what a trained model loses, for the page that `repsynth explore` writes.

    python -m studies.benchmarks.trained

To be run again whenever a default share, a default of the training or the account changes; a test says so.
"""

from pathlib import Path

import msgspec

from repsynth import report
from repsynth.report.trained import make_grid

if __name__ == "__main__":
    made = msgspec.json.format(msgspec.json.encode(make_grid()), indent=0)
    (Path(report.__file__).parent / "pages" / "trained.json").write_bytes(made + b"\n")

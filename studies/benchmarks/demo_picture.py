"""The README's picture: the demo's people, real and synthetic, and what a record loses. Writes docs/demo.svg."""

import argparse
from pathlib import Path

import matplotlib
import numpy as np

from repsynth import datasets, synthesize
from repsynth.privacy.formatting import upper
from studies.drawing import BLUE as REAL
from studies.drawing import ORANGE as SYNTHETIC


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/demo.svg"))
    output = parser.parse_args().output
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    people = datasets.load("people")
    release = synthesize(people.table, people.schema, epsilon=1.0, delta=1e-6)
    tables = {"real": people.table.to_pandas(), "synthetic": release.sample(6000).to_pandas()}
    plt.rcParams.update(
        {"font.size": 9, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, (ages, homes, losses) = plt.subplots(1, 3, figsize=(9.6, 2.7))

    edges = np.arange(18, 96, 3)
    ages.hist(tables["real"].age, edges, color=REAL, alpha=0.35, label="real", density=True)
    ages.hist(
        tables["synthetic"].age, edges, histtype="step", color=SYNTHETIC, lw=1.6, label="synthetic", density=True
    )
    ages.set(title="Age", yticks=[], xlabel="years")
    ages.legend(frameon=False)

    decades = np.arange(18, 95, 11)
    for table, colour in zip(tables.values(), (REAL, SYNTHETIC), strict=True):
        within = [table.owns_home[(table.age >= low) & (table.age < low + 11)] == "yes" for low in decades]
        homes.plot(decades + 5.5, [100 * w.mean() if len(w) else np.nan for w in within], "o-", color=colour, ms=4)
    homes.set(title="Owns a home, by age", xlabel="years", ylabel="%", ylim=(0, 100))

    fractions: dict[float, float] = {}
    for stratum in release.privacy.distribution():
        bound = float(upper(stratum.epsilon, 3))
        fractions[bound] = fractions.get(bound, 0.0) + 100 * stratum.fraction
    bounds = sorted(fractions)
    bars = losses.barh(
        [f"ε ≤ {upper(bound, 3)}" for bound in bounds],
        [fractions[bound] for bound in bounds],
        color=[SYNTHETIC, REAL][: len(bounds)],
        height=0.55,
    )
    outliers = ["" if bound == bounds[-1] else ", the outliers" for bound in bounds]
    labels = [f"{fractions[b]:.0f} % of the records{o}" for b, o in zip(bounds, outliers, strict=True)]
    losses.bar_label(bars, labels, padding=3)
    losses.set(title="What a record loses at most", xticks=[], xlim=(0, 150))
    losses.spines["bottom"].set_visible(False)
    figure.tight_layout()
    figure.savefig(output)
    print(f"Wrote {output}")


if __name__ == "__main__":
    main()

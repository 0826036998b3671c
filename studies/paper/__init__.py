"""The paper's experiments, reproduced and corrected. Nothing here is a private release.

grid       the cells of the study: protocol, dataset, budget, seed, method
literal    `--protocol paper`: the paper's own mechanism, as far as it can be known
sound      `--protocol sound`: the product's own path
results    what one cell measures
study      run the cells: one file each, on several processes, resumable
summary    means, errors and paired differences over seeds, beside the published values
tabulate   terminal, Markdown, LaTeX;  figures: PNG and SVG
nulls      the attack of the paper where there is nothing to find
"""

STAMP = "not a private release"
"""What every output of the study says of itself: its noise is seeded and its numbers describe private records."""

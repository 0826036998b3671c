"""What the values of one column look like: cells, adaptive histograms, groups of cells, and how values are drawn."""

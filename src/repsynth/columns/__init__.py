"""What the values of one column look like: cells, histograms, groups of cells, drawing of values."""

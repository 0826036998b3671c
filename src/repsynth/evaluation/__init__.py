"""What a synthetic table is good for, and who could be found in it. What this computes from data is private.

matrix        records as numbers, category codes and labels, and the space they lie in
nearest       distances to nearest neighbours: membership attacks and outlyingness
utility       train on synthetic, test on real
distances     how far synthetic values are from real ones, column by column, pair by pair, and in triples
associations  how strongly columns depend on each other, whatever their types
coverage      ranges and categories that are there, repeated rows, copies of real ones
propensity    whether a classifier can tell real from synthetic records, and by which columns
regression    coefficients and their confidence intervals, real beside synthetic
subgroups     who pays: subgroups and deciles of outlyingness
measures      what a measure is: value, best, what two real halves give, parts
inputs        the tables, opened and checked
evaluate      all measures of a table
palette       the colours of pages
written       the folder that an evaluation leaves behind
"""

"""What a synthetic table is good for, and who could be found in it. What this computes from data is private.

matrix      records as numbers, category codes and labels, and the space they lie in
split       a dataset split into members, non-members and a reference
nearest     distances to nearest neighbours: membership attacks and outlyingness
utility     train on synthetic, test on real
distances   how far synthetic values are from real ones, column by column and pair by pair
"""

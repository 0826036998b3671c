"""Instantiation B: an autoregressive network, trained by risk-weighted DP-SGD.

model       its plan, its training, its files
network     the public structure, and drawing from it
recipe      how to learn, by public numbers alone
gradients   what a record adds to a round
optimiser   learning from the noisy sums
train       the rounds from start to end
"""

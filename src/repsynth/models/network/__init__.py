"""The autoregressive model: a network trained by risk-weighted DP-SGD (REPS, instantiation B).

model       settings, plan and files
network     the public structure, and drawing from it
gradients   the weighted, clipped gradient of each record, in exact integers
training    the recipe, and the descent on noisy sums
"""

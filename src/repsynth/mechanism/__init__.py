"""From exact sums to released values.

kernels   what can be asked of data: sums, choices, rounds of training
noise     the only module that draws noise
meter     the only door to the data: checks the budget, measures, adds noise, keeps the event
"""

"""From exact sums to released values.

kernels   the queries that data answers: sums, selections, rounds of training
noise     the only module that draws noise
meter     the only access to the data: checks the budget, measures, adds noise, records the event
"""

"""Privacy accounting. Nothing here sees data.

unit            the unit of privacy
gaussian        Gaussian differential privacy in closed form
budget          the total privacy budget of a release
events          charges (planned) and events (measured)
pld             numerical composition of trainings
adaptive_filter bounds for adaptively chosen runs
loss            the loss of a record by its influence
formatting      bounds as text, rounded to the safe side
ledger          the budget of a dataset over several runs
"""

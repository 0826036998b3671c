"""Privacy accounting. Nothing here sees data.

neighbours   the unit of privacy
gaussian     Gaussian differential privacy in closed form
budget       the total privacy budget of a release
events       charges (planned) and events (measured)
pld          numerical composition of trainings
bound        bounds for adaptively chosen runs
loss         the loss of a record by its influence
shown        bounds as text, rounded to the safe side
ledger       the budget of a dataset over several runs
"""

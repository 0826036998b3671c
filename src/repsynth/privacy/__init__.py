"""What privacy costs. Nothing here sees data.

neighbours   who is protected
gaussian     Gaussian differential privacy in closed form
budget       what may be lost in total
events       what is planned (a charge) and what happened (an event)
pld          numerical composition of trainings
loss         what a record loses, by its influence
shown        bounds as text, rounded towards the safe side
ledger       how much of a dataset's total was spent, over many runs
"""

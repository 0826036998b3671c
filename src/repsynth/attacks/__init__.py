"""Attacks on the records of a table: who could still be found? All of it is PRIVATE.

victims     the table, its holdout, the targets and how outlying each is
observing   one run of the plan, and what an attacker sees of it: released numbers and a synthetic table
lira        likelihood ratios learnt from other runs, with the target and without it
guesses     singling out, linking and inferring, against people who were not in the table
intervals   areas, rates and proven losses, with intervals for targets that share a run
campaign    all runs, in several processes; each result is kept, so that a second start resumes
exposure    the best attack that the account allows, and a line and a verdict for each attack

Every target is in a run or not by a coin, so each is its own control, and one run serves all of them.
"""

"""Who is still exposed: attacks on the records of a table, before anything is handed out. All of it is PRIVATE.

victims       the table, its holdout, the records under attack and how much each stands out
observing     a run that an attacker watches: who takes part is decided by coins
tabular       what a synthetic table tells: distances, densities, the cells that the model measured
calibrating   likelihood ratios learnt from other runs, in which the record took part or did not
closed_form   the best that any attack can do, by the account
guesses       singling out, linking and inferring, against people who were not in the table
intervals     areas, rates and proven losses, with intervals that know that a run serves all targets
campaign      all runs: several processes, each result kept, so that a second start goes on
exposure      from all runs to lines and a verdict for each

Every target is in a run or not by a coin, so each is its own control, and one run serves all of them.
"""

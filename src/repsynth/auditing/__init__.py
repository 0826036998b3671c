"""An audit that can fail: attack the mechanism on a table and its neighbour, and compare with the claims.

audit       the attacks on every measurement, choice and training of a plan
targets     the records under attack
bounds      what an attack proves, and whether that exceeds a claim
"""

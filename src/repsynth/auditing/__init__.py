"""An audit that can fail: attack the mechanism on a table and its neighbour, and compare with the claims.

audit       the attacks one after the other
targets     the records under attack
white_box   the attacker knows everything but the noise
training    the same for rounds of training
black_box   the attacker sees synthetic tables only
bounds      what an attack proves, and whether that exceeds a claim
"""

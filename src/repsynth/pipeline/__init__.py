"""Carry out a plan.

run          the flow, start to end
payment      whose budget pays, in a ledger
checkpoint   where a training is kept, so that one that was killed goes on
"""

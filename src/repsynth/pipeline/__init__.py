"""Carry out a plan.

run       the flow, start to end
payment   whose budget pays, in a ledger
"""

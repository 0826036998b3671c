"""Carry out a plan.

run       the four steps of the method
payment   reserve the cost in a ledger, and commit it
"""

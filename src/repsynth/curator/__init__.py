"""Tools for the curator. All but `private_schema` return functions of the data: PRIVATE.

draft           a schema read off the data, to be confirmed by hand
                profile (distinct values) -> guess (notation of numbers and dates) -> infer (types, with reasons)
check           what a schema makes of a table, before anything is paid
private_schema  a schema found by charged, noisy measurements, which may be published
dossier         each record's own loss
guarantee       the loss that holds before stage 1 is run
"""

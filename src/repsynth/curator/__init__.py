"""Tools for the curator. All but `private_schema` return functions of the data: PRIVATE.

profile, infer  draft a schema by looking at the data
check           what a schema makes of a table and its persons, before the run
private_schema  measure a schema with charged noise; it may be published
dossier         the privacy loss of each record
guarantee       the loss that is guaranteed before stage 1 runs
"""

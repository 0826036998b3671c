"""Tables in and out.

reading   how a table is written and what is read of a database: the flags and keywords of all who read one
sources   open a file, several, a database or a data frame as a stream of Arrow batches
encode    the only gate: every cell becomes a code inside the public domain
          notation: how numbers and times stand in text;  positions: where they lie on the public grid
record_rules  conditions on encoded records, and columns that follow from others
records   a batch of encoded records
persons   whose rows belong together, in one process;  fingerprints: by what ids are compared
decode    from codes back to cells, in one Arrow type per column type
write     tables to files, a writer for each suffix
"""

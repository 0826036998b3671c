"""Read and write tables.

reading  how a table is written: the options of every function and command that reads one
sources  open files, folders, databases and data frames;  source: batches, and checks of columns and storage types
         csv, arrow, sql, office: the formats
encode   every cell becomes a code inside the public domain;  values: how numbers and times are written
records  a batch of encoded records;  persons: ids and their keyed fingerprints
write    from codes back to cells, and to files
ids      made-up ids;  derived: conditions on records, and columns computed from others
"""

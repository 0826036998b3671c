"""What only the curator may see: everything here is a function of the data, and PRIVATE.

draft       a schema read off the data, to be confirmed by hand
            look (cells of a column) -> guess (how they are written), sentinels (which are codes) -> decide (type);
            follows: columns that follow from others
check       a table through its schema, before anything is paid;  tally: the counts
dossier     each record's own loss
guarantee   the loss that holds before stage 1 is run
"""

"""What only the curator may see: everything here is a function of the data, and PRIVATE.

draft       a schema read off the data, to be confirmed by hand
dossier     each record's own loss
guarantee   the loss that holds before stage 1 is run
"""

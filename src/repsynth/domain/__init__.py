"""A schema that is measured instead of written down: bounds and values found by charged, noisy measurements.

kinds     what each cell is, and how large: public cells of one noisy histogram                          (charge)
values    which texts are frequent enough to be shown                                                    (charge)
found     types, bounds and values that follow from both
measure   the way through, and what it cost

Only the names of the columns are taken as they are. Everything else in the schema follows from the
two measurements, so that it may be published, and its cost goes on into the account of every release made with it.
"""

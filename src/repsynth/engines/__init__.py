"""Where sums are computed: one protocol, and an engine for each place where data may lie.

base       what an engine is, and what a kernel is
opening    engines by name, and opening a source with one
local      one process
           codes: the table as it was encoded;  shelf: where that is put aside
clusters   many machines: tasks go to where the data lies, and integers come back
           work: what a worker does;  counting: how workers find whose rows belong together
           on_dask, on_spark: how each kind of cluster is asked

`Engine.sum(kernel)` is the only way from data to numbers.
"""

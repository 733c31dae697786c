"""Topics to tables, declared in a file: bronze, silver and gold, dead letters and late rows.

Each batch is staged by executors, written down in one batch manifest, and committed from that to
every table. The manifests are what says how far a pipeline is; Spark's checkpoint is not.
"""

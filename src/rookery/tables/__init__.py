"""Tables that batches are added to exactly once: Parquet by manifest, Iceberg, Delta, DuckDB.

Data files are written where the data is (`stage`), and made part of a table by whoever drives
the work (`commit`), under the batch's name: a batch that is committed again is not added again.
"""

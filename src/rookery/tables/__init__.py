"""Tables with exactly-once batches: Parquet with manifests, Iceberg, Delta, DuckDB.

Data files are written where the data is (`stage`). The driver adds them to a table under the
batch's name (`commit`). A batch that is committed again is not added again.
"""

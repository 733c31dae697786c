"""Changes to the internals of Spark that make Python sources faster; all are off by default.

Each file holds one: what it changes, which pyspark versions it was checked with, what it is worth,
and its name for the setting `spark.rookery.tuning`. docs/guide/spark.md has the table for users.
"""

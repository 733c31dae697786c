"""Changes to the internals of Spark that make Python sources faster; all are off by default.

Each module documents one change: its effect, the pyspark versions it was checked with, and its name
for the setting `spark.rookery.tuning`. docs/guide/spark.md has a table for users.

`choose` (choice.py) returns the tunings that a setting names; each other module has one `TUNING`.
"""

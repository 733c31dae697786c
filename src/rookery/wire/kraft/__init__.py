"""The records of `__cluster_metadata`: everything that a KRaft controller decides.

`RECORDS` and `read_record` (catalog.py) find the class of a record by its key; each other module
has the records of one subject.
"""

"""The records of `__cluster_metadata`: everything that a KRaft controller decides."""

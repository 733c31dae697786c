"""Declarative pipelines from topics to tables: bronze, silver, gold, dead letters and late rows.

Executors stage each batch. One batch manifest records it, and the batch is committed from the
manifest to every table. The manifests, not Spark's checkpoint, define the position of a pipeline.
"""

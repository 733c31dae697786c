"""Appends to the files of a log directory, as Kafka would.

An `AppendLog` appends `NewBatch`es to one partition, with its indexes. smallfiles.py replaces files
atomically.
"""

"""Appends to the files of a log directory, as Kafka would."""

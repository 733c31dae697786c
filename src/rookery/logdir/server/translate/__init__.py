"""Translates applied entries into the files and records that Kafka would have written."""

"""Producing: partitions, batches, senders and transactions."""

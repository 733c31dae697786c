"""Producing: partitions, batches, senders and transactions.

`Producer` and `TransactionalWriter` are public in `rookery.client`. `StoredBatch` reports where a
batch of a writer was stored.
"""

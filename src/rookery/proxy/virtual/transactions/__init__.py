"""Transactions that write to virtual partitions: their sequences, partitions and batches."""

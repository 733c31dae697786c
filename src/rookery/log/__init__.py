"""The log: batches are made durable, read again, maintained, checked and recovered."""

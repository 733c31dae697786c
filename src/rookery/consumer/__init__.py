"""All partitions as one stream of Arrow batches, in the order of time."""

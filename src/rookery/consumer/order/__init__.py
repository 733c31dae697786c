"""Time order over all partitions: decoded blocks, keys, the merge, and the engine around it."""

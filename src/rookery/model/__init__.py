"""Plain values that every layer shares.

Each module is one value: `TopicPartition`, `Address`, `Node`, `Location` and so on. It imports
nothing of Rookery but errors.
"""

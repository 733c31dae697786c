"""Access to the log without a broker: reads and writes go directly to the store and cluster log."""

"""A log directory behind a broker: its state, its cluster log, its reads and its upkeep."""

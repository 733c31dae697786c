"""Serves a log directory through a broker: its state, cluster log, reads and maintenance."""

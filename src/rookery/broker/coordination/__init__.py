"""Coordination of anything that one broker at a time may own: claims, events, persists, time."""

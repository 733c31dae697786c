"""Coordination of keys that one broker at a time can own: claims, events, persists, time."""

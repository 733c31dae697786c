"""Stores for immutable objects by key, which are created only if absent."""

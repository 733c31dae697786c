"""Objects by key: created if absent, never overwritten."""

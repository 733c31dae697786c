"""The serialised state for snapshots: one module per part, and the whole."""

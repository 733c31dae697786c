"""Plain values that every layer shares."""

"""Access control between decoding and handling: rules in force, decisions, and redaction."""

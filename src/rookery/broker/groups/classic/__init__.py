"""The classic group protocol: its state machine, its members and its persisted form."""

"""The consumer group protocol (KIP-848): its state machine, assignors and persisted form."""

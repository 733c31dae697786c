"""Consumer groups: one pure state machine a protocol, and the coordinator that drives them."""

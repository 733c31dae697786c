"""Consumer groups: one pure state machine per protocol, and the coordinator that drives them."""

"""The cluster log: one totally ordered log of all that brokers must agree on."""

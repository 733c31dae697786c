"""The cluster log: one totally ordered log of everything that brokers must agree on."""

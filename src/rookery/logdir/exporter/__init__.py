"""Exports a cluster's log as the data directory of a Kafka broker."""

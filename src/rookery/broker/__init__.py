"""The broker: Kafka's APIs over the cluster's state and the log."""

"""The broker: implements the Kafka APIs on top of the cluster state and the log."""

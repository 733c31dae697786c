"""A kit for testing against Rookery or a real Kafka."""

"""A real Kafka's access rules, users and quotas, carried over and back."""

"""The records of Kafka's state topics: what group, transaction and share coordinators remember."""

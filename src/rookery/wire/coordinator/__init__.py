"""The records of Kafka's state topics: the state of group, transaction and share coordinators."""

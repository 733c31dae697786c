"""Rookery: a Kafka-compatible streaming platform whose log lives in object storage."""

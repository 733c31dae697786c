"""Kafka's own data directory: reading, serving, writing, import and export."""

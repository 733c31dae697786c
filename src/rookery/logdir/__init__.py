"""Kafka's own data directory: read, served, written, and brought home."""

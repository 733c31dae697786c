"""Kafka's protocol as bytes and messages: no socket, file, clock or thread."""

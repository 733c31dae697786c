"""Sockets: a listener, its connections, and connections to upstream brokers."""

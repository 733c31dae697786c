"""Sockets: a listener, its connections, and one broker seen from a client."""

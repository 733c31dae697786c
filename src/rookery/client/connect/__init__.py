"""Connections of a client to a cluster: login, versions, metadata, routing and retries."""

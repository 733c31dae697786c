"""Enforcement of client quotas: the response reports a pause, then the connection is muted."""

"""Enforcement of client quotas: the response reports a pause, then the connection is muted.

`ClientQuotas` computes the pause for a request; a `RequestThrottle` imposes it.
"""

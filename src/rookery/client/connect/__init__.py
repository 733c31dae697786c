"""Connections of a client to a cluster: login, versions, metadata, routing and retries.

A `Router` sends a request to the leader, coordinator or controller that can answer it, over a
`Link`. `negotiate` chooses versions, `may_retry` and `Deadline` say when to try again.
"""

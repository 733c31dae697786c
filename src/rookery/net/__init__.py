"""Sockets: a listener, its connections, and connections to upstream brokers.

A `Listener` accepts clients; a `Connection` serves one of them and keeps its `ClientSession`. An
`Upstream` is a connection to a broker. `HttpServer` serves pages, and `run_loop` starts the event
loop of a program.
"""

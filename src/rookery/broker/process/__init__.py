"""The broker as a process: start-up, workers, node id, liveness, health and metrics.

`Broker` opens `ClientPorts`, `Membership` and `ClusterDuties`. Health and metrics come from the
`Observer`; `BrokerWorkers` are several processes on shared ports. `NodeLock` claims a node id among
the brokers of a host.
"""

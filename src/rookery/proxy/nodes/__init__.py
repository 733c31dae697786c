"""Broker nodes: clients see the proxy's instances as the brokers of the cluster.

Any instance serves any partition, group and transactional id. A request is divided among the
brokers that can answer its parts, and their answers are joined.

    request ──► NodeLink ──► routes, division ──► BackendPool ──► brokers
                   │               ▲
               NodeView        UpstreamTopology, CoordinatorCache

`instances`, `topology`, `routes`, `division`, `nodeview`, `writeorder` and `fetchbuffer` are pure:
they decide, and do no I/O.
"""

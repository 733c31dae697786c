"""A proxy for Kafka clusters: it advertises its own addresses, and filters can change what passes.

A *virtual cluster* is what the proxy's clients see. Its *upstream* is the Kafka cluster
that the proxy connects to.
In mirror mode, every broker of the upstream has a port of its own here, and every client connection
has one connection to that broker.

    bytes ──► Listener ──► Relay ──► ClientLink ──► Upstream ──► broker
                             │           │
                        PassageTable  LinkState

Requests and responses pass without being decoded, unless they hold addresses of brokers or a filter
wants them. `rookery.proxy` exports nothing; the command is `rookery proxy`.
"""

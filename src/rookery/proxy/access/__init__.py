"""Access to a virtual cluster and to its upstream: TLS, logins and the names of brokers."""

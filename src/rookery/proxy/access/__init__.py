"""Who may use a virtual cluster, and as whom the proxy uses its upstream: TLS, logins and names."""

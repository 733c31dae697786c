"""Authentication and access control: TLS, SASL, principals, access rules and quotas."""

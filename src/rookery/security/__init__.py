"""Authentication and access control: TLS contexts, SASL and access rules."""

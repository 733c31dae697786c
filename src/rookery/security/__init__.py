"""Authentication and access control: TLS, SASL, principals, access rules and quotas.

tls.py makes contexts from `ServerTls` and `ClientTls`. sasl.py has the exchanges of mechanisms.
`AclRules` decides by rules, and an API states what it needs as an `Access`. `QuotaTable` has
quotas; certificates.py makes certificates.
"""

"""Who is it, and may he: TLS contexts and SASL."""

"""Delegation tokens (KIP-48): their passwords, and their expiry."""

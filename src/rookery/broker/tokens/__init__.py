"""Delegation tokens (KIP-48): their passwords, and their expiry.

`DelegationTokens` creates and checks tokens. Handlers use `token_user` and `change_token`;
`TokenExpiry` is a periodic task.
"""

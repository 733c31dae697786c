"""Listeners of a server: settings, shared ports, logins and the identity of clients.

A `ListenerConfig` has the settings of one listener. `ListenerIdentity` gives each client its
identity, `LoginService` logs them in, and exposure.py judges how open it is.
"""

"""Listeners of a server: settings, shared ports, logins and the identity of clients."""

"""Imports a broker's disk into a cluster with object storage, keeping every offset.

`DirectoryImport` imports a directory by `ImportSettings` and returns an `ImportReport`.
"""

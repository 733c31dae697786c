"""Imports a broker's disk into a cluster with object storage, keeping every offset."""

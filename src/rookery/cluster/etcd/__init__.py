"""The implementation of `backends/etcd.py`, a cluster log in etcd."""

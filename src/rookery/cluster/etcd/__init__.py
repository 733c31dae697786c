"""A cluster log in etcd: what `backends/etcd.py` is made of."""

"""The implementation of `backends/etcd.py`, a cluster log in etcd.

`backends/etcd.py` composes it of an `EtcdClient`, an `EtcdAppender`, an `EtcdReader` and a
`HeadWatch`; no other module imports it.
"""

"""The log without a broker: read and written straight in the store, as the cluster log says."""

"""Settings of topics and brokers: keys, values in force, and changes to them.

`TopicCache` returns the effective `TopicConfigs` of a topic. `alter` changes settings, for both
requests that do so. The tables in configkeys.py define all keys.
"""

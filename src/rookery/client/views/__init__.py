"""Read models of a cluster: frozen values that commands print and the console shows.

Each module fetches one subject through a `Client`: topics, configs, groups, brokers, transactions.
The values contain no formatted text and no JSON; the caller chooses the format.

A module has a function such as `list_topics` or `describe_groups`, and the classes that it returns.
"""

"""A cluster as people look at it: frozen values that the commands print and the console shows.

Each module fetches one subject through a `Client`: topics, configs, groups, brokers, transactions.
The values hold no text for people and no JSON; whoever shows them decides on the form.
"""

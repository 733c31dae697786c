"""The parts of a log shared by the processes of one host: file, lock, doorbell, threads.

`backends/sqlite.py` composes it of a `Database`, a `LocalAppender` and a `Worker` for reads; no
other module imports it.
"""

"""The steps of `rookery demo`: kill a broker, kill a pipeline, and count the records afterwards.

Each demo is one function: `run_records_demo`, `run_tables_demo`, `run_secure_demo` and
`run_proxy_demo`.
"""

"""Table formats, one module per format, found by name; each provides `open(spec) -> Table`.

`open_table` imports a module by the name of the format. Each passes
`tests/tables/test_contract.py`.
"""

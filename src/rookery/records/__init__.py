"""Record batches: headers, records, compression and Arrow columns.

`BatchHeader` and batches.py read and change batches as bytes; `scan` checks stored ones against an
`Expectation` by a policy (policy.py). recordcodec.py has single records; `columns.decode` and
`columns.encode` convert to Arrow and are public. The modules that begin with `_` are compiled.
"""

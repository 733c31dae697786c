"""Record batches: headers, records, compression and Arrow columns."""

"""The read path: rows of the state, or planned ranges of them, to checked batches."""

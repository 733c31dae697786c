"""The read path: rows of the state to checked batches, from memory, journals and objects."""

"""One batch of a pipeline: the driver plans it, tasks decode and stage it, tables commit it."""

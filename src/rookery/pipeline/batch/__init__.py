"""One batch of a pipeline: the driver plans it, tasks decode and stage it, tables commit it.

`BatchEngine` runs batches one after the other. A `BatchPlan` says what is in one; `StageTask` is
the part that runs on executors.
"""

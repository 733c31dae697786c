"""Shared parts of jobs that move records: slices, routes, offset maps, tasks and progress.

Only jobs import it. `plan_ranges` and `read` find the records, a `TopicRoute` chooses their target,
`fill` writes them.
"""

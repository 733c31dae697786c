"""Shared parts of jobs that move records: slices, routes, offset maps, tasks and progress."""

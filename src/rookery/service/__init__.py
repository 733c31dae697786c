"""Shared parts of server processes: life cycle, workers, tasks, log lines, metrics, health."""

"""Shared parts of server processes: life cycle, workers, tasks, log lines, metrics, health.

A server is a `Service` in a `MonitoredServer`, run by `run_server`. `Supervisor` runs several
processes, `PeriodicTasks` the work of one. A server adds its checks to `ServerHealth`, and counts
requests with `ApiMeter`.
"""

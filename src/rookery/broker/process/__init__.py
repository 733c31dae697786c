"""The broker as a process: start-up, workers, node id, liveness, health and metrics."""

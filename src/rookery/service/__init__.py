"""What every server process needs: life cycle, workers, tasks, log lines, metrics, health."""

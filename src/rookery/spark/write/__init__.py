"""Writing topics in Spark: options, staging in tasks, and the atomic commit on the driver."""

"""Records that a pipeline reads again: backfills, rebuilds, dead letters and migrations."""

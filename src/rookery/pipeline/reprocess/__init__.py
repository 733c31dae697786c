"""Records that a pipeline reads again: backfills, rebuilds, dead letters and migrations.

Commands call `backfill`, `rebuild` and `replay_dead_letters`; `migrations` names the columns that
can be renamed.
"""

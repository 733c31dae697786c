"""The `rookery` command: one file a subcommand.

`main` finds the command that is named, imports its module alone, and runs it. A command is a
`Command` (command.py); a folder of commands is a `CommandFamily`. `run_client` and `run_job` run
the work of those that need a client or Spark.
"""

"""Checks of a whole log against its cluster log (`rookery fsck`), and of journals after a crash.

`check` returns a `CheckReport` of `LogFault`s; `ObjectCheck` checks one object, also for recovery.
`JournalSurvey` looks at the journals when a broker starts.
"""

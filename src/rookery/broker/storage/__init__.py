"""The storage of a broker: the port `Backing`, its implementations, and the caretaker process.

`open_backing` returns a `Backing` for the settings; nothing else of it depends on where the log
lives. Commands open the same log without a broker with `open_handles`.
"""

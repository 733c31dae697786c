"""The storage of a broker: the port `Backing`, its implementations, and the caretaker process.

`open_backing` returns a `Backing` for the settings; no other code of the broker depends on the
location of the log. Commands open the same log without a broker with `open_handles`.
"""

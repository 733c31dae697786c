"""The storage of a broker: the port `Backing`, its implementations, and the caretaker process."""

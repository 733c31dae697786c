"""The parts of a log shared by the processes of one host: file, lock, doorbell, threads."""

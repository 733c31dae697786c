"""What a log shared by the processes of one host is made of: file, lock, doorbell, threads."""

"""The proxy as a process: changed settings, the health of filters, the page of its states."""

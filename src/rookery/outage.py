"""Logs the beginning and the end of an outage instead of every failure in it."""

from __future__ import annotations

import logging

from rookery.errors import Error


class Outage:
    """The state of one dependency: whether it fails, and the number of failed calls."""

    def __init__(self, log: logging.Logger, subject: str) -> None:
        """Start without an outage.

        Args:
            log: receives a line when an outage begins, when its cause changes, and when it ends.
            subject: names the dependency; it is the first part of each log line.
        """
        self._log = log
        self._subject = subject
        self._kind: type[BaseException] | None = None
        self.failures = 0
        """The number of failures in the current outage; 0 if there is none."""

    def fail(self, error: BaseException) -> None:
        """Count a failure; errors of the same class are treated as the same cause."""
        if type(error) is not self._kind:
            # An error that is not a Rookery error is a bug, so its traceback is logged.
            origin = None if isinstance(error, Error) else error
            self._log.warning(
                "%s fails: %s",
                self._subject,
                error,
                exc_info=origin,
                extra={"subject": self._subject, "error": str(error)},
            )
        self._kind = type(error)
        self.failures += 1

    def end(self) -> None:
        """Record a successful call."""
        if self.failures:
            self._log.info(
                "%s works again after %d failures",
                self._subject,
                self.failures,
                extra={"subject": self._subject, "failures": self.failures},
            )
            self._kind, self.failures = None, 0

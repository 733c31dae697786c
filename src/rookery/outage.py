"""Logs the beginning and the end of an outage instead of every failure in it."""

from __future__ import annotations

import logging

from rookery.errors import Error


class Outage:
    """What is known of one dependency: whether it fails, since how many calls."""

    def __init__(self, log: logging.Logger, subject: str) -> None:
        """Begin without an outage.

        Args:
            log: gets a line when an outage begins, when its cause changes, and when it ends.
            subject: names what fails, as the beginning of a sentence.
        """
        self._log = log
        self._subject = subject
        self._kind: type[BaseException] | None = None
        self.failures = 0
        """Failures of the outage that lasts; 0 if there is none."""

    def fail(self, error: BaseException) -> None:
        """Count a failure; errors of one class are taken for one cause."""
        if type(error) is not self._kind:
            # An error of another class than ours is a bug: its origin is worth the lines.
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
        """Note that a call succeeded."""
        if self.failures:
            self._log.info(
                "%s works again after %d failures",
                self._subject,
                self.failures,
                extra={"subject": self._subject, "failures": self.failures},
            )
            self._kind, self.failures = None, 0

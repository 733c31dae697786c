"""The server's side of SASL mechanisms in which one message of the client proves who it is."""

from __future__ import annotations

from rookery.security.sasl import refusal


class SingleMessageServer:
    """The state of such a login; a mechanism derives from it and adds `respond`."""

    def __init__(self) -> None:
        self._is_used = False
        self._username: str | None = None
        self.claimed_name = ""
        """The user name that the client has claimed so far, for the audit; empty if none."""
        self.expires_ms = 0
        """The wall-clock time at which the credentials expire; 0 for never."""

    @property
    def is_done(self) -> bool:
        """Whether the client has proved who it is."""
        return self._username is not None

    @property
    def username(self) -> str:
        """Return the authenticated user name."""
        if self._username is None:
            raise RuntimeError("the client has not proved who it is")
        return self._username

    def _begin(self, repetition: str) -> None:
        """Accept the first message only: a failed exchange stays failed.

        Args:
            repetition: the text for a client that sends another one.

        Raises:
            ApiError: SASL_AUTHENTICATION_FAILED.
        """
        if self._is_used:
            raise refusal(repetition)
        self._is_used = True

    def _accept(self, username: str, expires_ms: int = 0) -> bytes:
        """Complete the login; return the empty response, which means success."""
        self._username, self.expires_ms = username, expires_ms
        return b""

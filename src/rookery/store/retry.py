"""Ask an object store again when it did not answer, until a deadline.

The client library's own retries are off: whoever creates an object has to know whether an earlier
attempt may have done it already.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.errors import Unavailable
from rookery.store.address import Address
from rookery.store.meter import RETRIES
from rookery.store.pending import note

_FIRST_PAUSE_MS: Final = 50.0
_LONGEST_PAUSE_MS: Final = 5_000.0
# Half to one and a half of the pause, so that clients that failed together return apart.
_SPREAD: Final = 0.5
_TEXT: Final = 300
_PANICS: Final = ("RustPanic", "PanicException")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_REFUSED: Final = "access is refused: check the access key, its secret and what they allow"
_ENDPOINT: Final = "the endpoint cannot be used: write http://host:port or https://host:port"
# What no further attempt can mend, by what the client's text holds, and what to do.
_PERMANENT: Final = (
    (r"status code: 40[13]\b", _REFUSED),
    (r"<Code>(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken)<", _REFUSED),
    (r"<Code>InvalidBucketName<", "the bucket's name is not valid"),
    (
        r"<Code>(AuthorizationHeaderMalformed|PermanentRedirect)<|incorrectly configured region",
        "the bucket is in another region: set the option region",
    ),
    (r"HTTP error: builder error", _ENDPOINT),
    (r"InvalidContentType", "the endpoint does not speak TLS: write http://host:port"),
    (r"InvalidCertificate", "the endpoint's certificate is not trusted"),
)
_CAUSES: Final = re.compile(r'(?:message: |error: )"([^"\n]{1,80})"')
_ANSWER: Final = re.compile(
    r"status code: (\d+).{0,200}?<Code>([^<]{1,80})</Code>\s*<Message>([^<]{1,200})</Message>",
    re.DOTALL,
)

T = TypeVar("T")


class Again(Exception):  # noqa: N818 (it is no error of its own: the attempt is made again)
    """The store answered, but not to the point: ask again."""


class Retrier:
    """Makes the attempts at requests to one store."""

    def __init__(
        self, address: Address, clock: Clock | None = None, random: Random | None = None
    ) -> None:
        self._name = address.name
        self._patience = address.patience
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()

    async def run(self, kind: str, key: str, attempt: Callable[[int], Awaitable[T]]) -> T:
        """Return what the attempt returns.

        Args:
            kind: what is asked for: a word for the metrics and for the error's text.
            key: the object's.
            attempt: makes the request once, within a time of its own. It is told how many
                attempts before it failed, each of which may have been done all the same.
                Rookery's own errors that it raises are final.

        Raises:
            Unavailable: no attempt came to an end before the deadline, access is refused, or the
                bucket is not there.
        """
        began_ms = self._clock.monotonic_ms()
        pause_ms, tried = _FIRST_PAUSE_MS, 0
        while True:
            try:
                return await attempt(tried)
            except (BaseError, OSError, Again) as error:  # A time-out is an OSError.
                note(said(error))
                if (reason := _hopeless(error)) is not None:
                    raise self._failed(kind, key, reason, error) from error
                tried += 1
                passed_ms = self._clock.monotonic_ms() - began_ms
                if passed_ms + pause_ms >= self._patience.deadline_ms:
                    times = f"{tried} attempts in {passed_ms} ms failed"
                    raise self._failed(kind, key, times, error) from error
            except BaseException as error:
                # The client library panics over an endpoint of the environment without a scheme.
                if type(error).__name__ in _PANICS:
                    raise self._failed(kind, key, _ENDPOINT, error) from error
                raise
            RETRIES.labels(kind).inc()
            await asyncio.sleep(self._random.jitter(pause_ms, _SPREAD) / 1000)
            pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)

    def _failed(self, kind: str, key: str, what: str, error: BaseException) -> Unavailable:
        return Unavailable(f"store {self._name}: cannot {kind} {key!r}: {what} ({said(error)})")


def lacks_bucket(error: Exception) -> bool:
    """Tell whether it is not only the object that is missing."""
    text = str(error)
    return any(words in text for words in _NO_BUCKET)


def _hopeless(error: Exception) -> str | None:
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return _REFUSED
    # Attempts know what a missing object means; if they pass it on, it is the bucket.
    if isinstance(error, FileNotFoundError) or lacks_bucket(error):
        return "there is no such bucket"
    text = str(error)
    return next((reason for words, reason in _PERMANENT if re.search(words, text)), None)


def said(error: BaseException) -> str:
    """Return the store's own words, short and in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text, _, inner = str(error).partition("\n\nDebug source:")
    if answer := _ANSWER.search(text):
        return f"{answer[1]} {answer[2]}: {answer[3]}"
    # Why there was no connection is in the inner text alone.
    cause = _CAUSES.search(inner)
    line = " ".join(text.split())[:_TEXT]
    return f"{line} ({cause[1]})" if cause else line

"""Interprets the errors of the client library.

They contain only text: no status, and no code of the server. This is the only module that parses
it.
"""

from __future__ import annotations

import re
from typing import Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

_MAX_TEXT: Final = 300
_PANICS: Final = ("RustPanic", "PanicException")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_REFUSED: Final = "access is refused: check the access key, its secret and what they allow"
BAD_ENDPOINT: Final = "the endpoint cannot be used: write http://host:port or https://host:port"
# Errors that a retry cannot fix, by patterns in the client's text, with the remedy.
_PERMANENT: Final = (
    (r"status code: 40[13]\b", _REFUSED),
    (r"<Code>(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken)<", _REFUSED),
    (r"<Code>InvalidBucketName<", "the bucket's name is not valid"),
    (
        r"<Code>(AuthorizationHeaderMalformed|PermanentRedirect)<|incorrectly configured region",
        "the bucket is in another region: set the option region",
    ),
    (r"HTTP error: builder error", BAD_ENDPOINT),
    (r"InvalidContentType", "the endpoint does not speak TLS: write http://host:port"),
    (r"InvalidCertificate", "the endpoint's certificate is not trusted"),
)
_STATUS: Final = re.compile(r"status code: (\d{3})\b")
_CAUSES: Final = re.compile(r'(?:message: |error: )"([^"\n]{1,80})"')
_ANSWER: Final = re.compile(
    r"status code: (\d+).{0,200}?<Code>([^<]{1,80})</Code>\s*<Message>([^<]{1,200})</Message>",
    re.DOTALL,
)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the server's response; None if the text contains none."""
    match = _STATUS.search(str(error))
    return int(match[1]) if match else None


def lacks_bucket(error: BaseException) -> bool:
    """Whether the bucket is missing, not only the object."""
    text = str(error)
    return any(words in text for words in _NO_BUCKET)


def is_panic(error: BaseException) -> bool:
    """Whether the client library panicked."""
    return type(error).__name__ in _PANICS


def permanent_reason(error: BaseException) -> str | None:
    """Return why another attempt would fail too, and what to do; None if one may succeed."""
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return _REFUSED
    # Attempts handle a missing object themselves. If they raise it, the bucket is missing.
    if isinstance(error, FileNotFoundError) or lacks_bucket(error):
        return "there is no such bucket"
    text = str(error)
    return next((reason for words, reason in _PERMANENT if re.search(words, text)), None)


def summary(error: BaseException) -> str:
    """Return the server's or the client's message, short and in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text, _, inner = str(error).partition("\n\nDebug source:")
    if answer := _ANSWER.search(text):
        return f"{answer[1]} {answer[2]}: {answer[3]}"
    # Only the inner text says why there was no connection.
    cause = _CAUSES.search(inner)
    line = " ".join(text.split())[:_MAX_TEXT]
    return f"{line} ({cause[1]})" if cause else line

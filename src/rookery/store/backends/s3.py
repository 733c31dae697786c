"""Objects in S3 or a compatible store: `s3://bucket/prefix?region=…&endpoint=…`.

Options are those of the client library (`access_key_id`, `secret_access_key`, `endpoint`,
`virtual_hosted_style_request`, …) with `timeout_ms` and `deadline_ms`. Options that are not in the
URL come from the environment (`AWS_…`) and from the role of the machine or the pod.
"""

from __future__ import annotations

from obstore.store import S3Store

from rookery.store.address import parse
from rookery.store.client import NO_RETRIES, client_options, wrong_options
from rookery.store.objectstore import ObjectStore
from rookery.store.port import Store, StoreTraits


def traits(_url: str) -> StoreTraits:
    """Return the traits: some servers ignore the conditions of requests."""
    return StoreTraits(has_preconditions=False)


def open(url: str) -> Store:  # noqa: A001 (a backend's interface)
    """Open the store in a bucket, which must exist; no request is made yet."""
    address = parse(url)
    with wrong_options(address):
        client = S3Store(
            address.bucket,
            prefix=address.prefix or None,
            config=address.options,  # type: ignore[arg-type] # the client checks the names
            client_options=client_options(address),
            retry_config=NO_RETRIES,
        )
    return ObjectStore(address, client)

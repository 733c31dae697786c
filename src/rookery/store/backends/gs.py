"""Objects in Google Cloud Storage: `gs://bucket/prefix?service_account=/path/to/key.json`.

Options are those of the client library (`application_credentials`, `bearer_token`, `base_url`, …)
with `timeout_ms` and `deadline_ms`. Options that are not in the URL come from the environment
(`GOOGLE_…`) and from the machine's role. The version of an object is its generation number.
"""

from __future__ import annotations

from obstore.store import GCSStore

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
        client = GCSStore(
            address.bucket,
            prefix=address.prefix or None,
            config=address.options,  # type: ignore[arg-type] # the client checks the names
            client_options=client_options(address),
            retry_config=NO_RETRIES,
        )
    return ObjectStore(address, client, version_name="version")

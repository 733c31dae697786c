"""Objects in Azure Blob Storage: `az://container/prefix?account_name=…&account_key=…`.

Options are those of the client library (`sas_key`, `client_id`, `tenant_id`, `endpoint`, …) with
`timeout_ms` and `deadline_ms`. Options that are not in the URL come from the environment
(`AZURE_…`) and from the machine's identity.
"""

from __future__ import annotations

from obstore.store import AzureStore

from rookery.store.address import parse
from rookery.store.client import NO_RETRIES, client_options, wrong_options
from rookery.store.objectstore import ObjectStore
from rookery.store.port import Store, StoreTraits


def traits(_url: str) -> StoreTraits:
    """Return the traits: some servers ignore the conditions of requests."""
    return StoreTraits(has_preconditions=False)


def open(url: str) -> Store:  # noqa: A001 (a backend's interface)
    """Open the store in a container, which must exist; no request is made yet."""
    address = parse(url)
    with wrong_options(address):
        client = AzureStore(
            address.bucket,
            prefix=address.prefix or None,
            config=address.options,  # type: ignore[arg-type] # the client checks the names
            client_options=client_options(address),
            retry_config=NO_RETRIES,
        )
    return ObjectStore(address, client)

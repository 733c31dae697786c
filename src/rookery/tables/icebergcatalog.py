"""The place of an Iceberg table in its catalog: how it is found and created."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, TableProperties, Transaction
from sqlalchemy.exc import SQLAlchemyError

from rookery.errors import ConfigError, Unavailable
from rookery.model.location import Location
from rookery.store.address import parse
from rookery.store.open import as_url
from rookery.tables.folder import TableFolder
from rookery.tables.identity import iceberg_catalog, iceberg_name
from rookery.tables.port import TableSpec

_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "16",
    # Otherwise the metadata folder grows with every commit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_FOLDER: Final = "rookery.folder"
"""The property with the location of Rookery's files."""
_LAYOUT: Final = "rookery.layout"
"""The property with the version of Rookery's properties in a table."""
_OWN_RETRIES: Final = "2"
"""From this layout on, the number of retries is not changed; before, it was 0 for all writers."""
_SAME_SCHEMES: Final = re.compile(r"^(?:s3[an]?://|file:/+)")
_S3: Final = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}


class CatalogEntry:
    """One table of a catalog, whether it exists or not."""

    def __init__(self, spec: TableSpec, folder: TableFolder) -> None:
        self._folder = folder
        self._chosen = iceberg_catalog(spec)
        self._is_beside = not spec.options.get("catalog")
        if "%" in self._folder.name:
            raise ConfigError(
                f"table {spec.location!r}: pyiceberg takes addresses as they are; use letters,"
                " digits and -_./ only"
            )
        self.name = iceberg_name(spec)
        """The table's name, with its namespace."""

    def load(self) -> Table | None:
        """Load the table; return None if it does not exist.

        Raises:
            ConfigError: the table of that name has its files elsewhere.
            Unavailable: the catalog or the table cannot be read.
        """
        try:
            table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            return None
        except (OSError, SQLAlchemyError) as error:
            raise Unavailable(f"table {self.name!r} or its catalog: {error}") from error
        # A catalog can store its files at another location than requested; Rookery's files do not
        # move.
        place = table.properties.get(_FOLDER) or as_url(table.location())
        if _plain(place) != _plain(self._folder.name):
            raise ConfigError(
                f"table {self.name!r}: the catalog has one of that name at {place},"
                f" and this one is at {self._folder.name}: give it another `name` or `namespace`"
            )
        return table

    def reload(self) -> Table:
        """Load the table, which exists and was found at its location before."""
        return self._catalog.load_table(self.name)

    def create(self, schema: pa.Schema) -> Table:
        """Create the table, unless another writer has created it meanwhile."""
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self.name.split(".", maxsplit=1)[0])
        try:
            return self._catalog.create_table(
                self.name,
                schema,
                location=self._folder.name,
                properties={**_PROPERTIES, _FOLDER: self._folder.name, _LAYOUT: _OWN_RETRIES},
            )
        except TableAlreadyExistsError:
            return self.reload()

    @cached_property
    def _catalog(self) -> Catalog:
        chosen = self._chosen
        if chosen.startswith("name:"):
            return load_catalog(chosen.removeprefix("name:"))
        if not chosen:
            raise ConfigError(
                f"table {self.name!r}: say `catalog`, such as sqlite:////var/lib/catalog.db"
                " or name:NAME for one of pyiceberg's configuration; there is no folder next to it"
            )
        if self._is_beside and self._folder.path is not None:
            self._folder.path.parent.mkdir(parents=True, exist_ok=True)
        uri = Location(chosen).reveal()
        return load_catalog("rookery", type="sql", uri=uri, **self._file_options())

    def _file_options(self) -> dict[str, str]:
        if self._folder.path is not None:
            return {}
        options = parse(self._folder.url).options
        return {_S3[name]: value for name, value in options.items() if name in _S3}


def restore_retries(transaction: Transaction, table: Table) -> None:
    """Restore the retries of other writers, which an earlier release disabled."""
    if _LAYOUT in table.properties:
        return
    transaction.set_properties({_LAYOUT: _OWN_RETRIES})
    if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) == "0":
        transaction.remove_properties(TableProperties.COMMIT_NUM_RETRIES)


def _plain(address: str) -> str:
    """Normalise an address, which catalogs write in several ways."""
    return _SAME_SCHEMES.sub(lambda match: f"{match[0][:2]}:/", address).rstrip("/")

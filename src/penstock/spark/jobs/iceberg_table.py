"""An archive as an Iceberg table: for engines that read Iceberg, through a catalog.

The catalog is the one that pyiceberg's own settings name `penstock`, by a file or by variables. If
they name none, it is a SQLite file in the archive's folder, which must then be on the local disk.
The manifest decides; the table follows it, and files that it has are not added again. Needs
`penstock[iceberg]`; no jar.
"""

from __future__ import annotations

import re

from pyarrow import fs

from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder, Manifest
from penstock.spark.archives.parquet import FILE_SCHEMA

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.table import Table
    from pyiceberg.utils.config import Config
except ImportError:
    raise UsageError("Iceberg tables need pyiceberg: pip install 'penstock[iceberg]'") from None

NAMESPACE = "penstock"
FOLDER = "iceberg"


def commit_iceberg(place: str, manifest: Manifest) -> None:
    """Add every file of the manifest that has messages to the stream's Iceberg table."""
    folder = ArchiveFolder(place)
    table = _table(_catalog(folder), manifest)
    known = {each.as_py().rpartition("/")[2] for each in table.inspect.files()["file_path"]}
    added = [
        _uri(folder, each.name)
        for each in manifest.files
        if each.messages and each.name.rpartition("/")[2] not in known
    ]
    if added:
        table.add_files(added)


def table_name(stream: str) -> str:
    """Return the name of a stream's table; letters that a table's name may not have become _."""
    return re.sub(r"\W", "_", stream)


def open_table(place: str, stream: str) -> Table:
    """Return a stream's table; raise UsageError if there is none."""
    folder = ArchiveFolder(place)
    try:
        return _catalog(folder).load_table((NAMESPACE, table_name(stream)))
    except NoSuchTableError:
        raise UsageError(f"{place} has no Iceberg table of {stream}") from None


def _uri(folder: ArchiveFolder, name: str) -> str:
    if isinstance(folder.files, fs.LocalFileSystem):
        return f"file://{folder.full(name)}"
    return f"{folder.place}/{name}"


def _catalog(folder: ArchiveFolder) -> Catalog:
    settings = Config().get_catalog_config(NAMESPACE)
    if settings:
        return load_catalog(NAMESPACE, **{name: str(text) for name, text in settings.items()})
    if not isinstance(folder.files, fs.LocalFileSystem):
        raise UsageError(
            f"{folder.place} is not on the local disk: name a catalog `penstock` in the settings "
            "of pyiceberg"
        )
    folder.files.create_dir(folder.full(FOLDER), recursive=True)
    return SqlCatalog(
        NAMESPACE,
        uri=f"sqlite:///{folder.full(FOLDER)}/catalog.db",
        warehouse=_uri(folder, FOLDER),
    )


def _table(catalog: Catalog, manifest: Manifest) -> Table:
    name = (NAMESPACE, table_name(manifest.stream))
    catalog.create_namespace_if_not_exists(NAMESPACE)
    # The files have no minimum and maximum of these, and pyiceberg warns of each.
    unmeasured = ("subject_raw", "headers", "data")
    properties = {f"write.metadata.metrics.column.{each}": "none" for each in unmeasured}
    return catalog.create_table_if_not_exists(name, FILE_SCHEMA, properties=properties)

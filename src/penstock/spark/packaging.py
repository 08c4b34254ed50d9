"""Penstock as one archive for a cluster whose machines do not have it: `--archives env.tar.gz#env`.

    bin/python     runs the machine's own Python of the same version, with the packages beside it
    lib/           this Penstock, with its compiled modules, and all that it needs but Spark

A zip for `--py-files` would not do: compiled modules cannot be loaded from one. The archive fits
machines with the same kind of processor and system, and with the same Python on their PATH. Spark
brings PySpark along. The same packages make the same bytes.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from penstock import errors
from penstock.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BROUGHT_BY_SPARK = frozenset({"pyspark", "py4j"})
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests|include)(/|$)|\.(pyc|pyx|pxd|pyi|c|h)$|^\.\.")
"""Files that are not needed at run time."""

_LAUNCHER = """#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec {python} "$@"
"""


def pack(target: Path) -> int:
    """Write the archive and return its size; raise UsageError or OSError."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        # Without a name and a time in its header, equal contents make equal gzip files.
        # Most of it is libraries: a higher level takes three times as long for a tenth of
        # the size.
        with (
            unfinished.open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w") as archive,
        ):
            _add(archive, "bin/python", _launcher(), mode=0o755)
            for name, path in sorted(_files().items()):
                _add(archive, f"lib/{name}", path.read_bytes(), mode=0o644)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target.stat().st_size


def _launcher() -> bytes:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return _LAUNCHER.format(python=python).encode()


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(data))


def _files() -> dict[str, Path]:
    found = dict(_own_files())
    for distribution in needed():
        for each in distribution.files or []:
            path = Path(str(distribution.locate_file(each)))
            if not _LEFT_OUT.search(each.as_posix()) and path.is_file():
                found[each.as_posix()] = path
    return found


def _own_files() -> Iterator[tuple[str, Path]]:
    # An editable install is not in the folder of installed packages.
    package = Path(errors.__file__).parent
    for path in [*package.rglob("*"), *package.parent.glob("pyspark_penstock*.py")]:
        name = path.relative_to(package.parent).as_posix()
        if path.is_file() and not _LEFT_OUT.search(name):
            yield name, path


def needed() -> list[importlib.metadata.Distribution]:
    """Return the installed packages that Penstock with Spark needs, without Spark itself."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = [("penstock", "spark")]
    while wanted:
        name, extra = wanted.pop()
        if name in found or name in _BROUGHT_BY_SPARK:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # It is for another system or another version of Python.
            continue
        found[name] = distribution
        for line in distribution.requires or []:
            required, _, condition = line.partition(";")
            if "extra" not in condition or (extra and extra in condition):
                wanted.append((_normal(required), ""))
    if found.pop("penstock", None) is None:
        raise UsageError("Penstock itself is not installed here: pip install 'penstock[spark]'")
    return [found[name] for name in sorted(found)]


def _normal(requirement: str) -> str:
    name = _NAME.match(requirement.strip())
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name.group()).lower()

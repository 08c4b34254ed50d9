"""Penstock as an archive: what is in it, and that a bare Python runs it."""

from __future__ import annotations

import hashlib
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

from penstock.spark.packaging import needed, pack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READ = """
import penstock.format.columns, penstock.client.columns, pyarrow, sys
print(penstock.__file__, pyarrow.__file__, sep="\\n")
"""


def test_all_that_penstock_needs_is_found_but_spark_itself() -> None:
    names = {each.metadata["Name"].lower() for each in needed()}

    assert {"pyarrow", "msgspec", "cryptography", "cffi"} <= names
    assert not names & {"pyspark", "py4j", "penstock", "pytest"}


@pytest.mark.soak
def test_a_python_that_has_nothing_runs_what_is_packed(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"

    size = pack(archive)

    assert size == archive.stat().st_size
    assert [each.name for each in tmp_path.iterdir()] == ["env.tar.gz"]
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "env", filter="data")
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyx")]
    # The interpreter is that of the machine, and not the one of this environment.
    home = Path(sysconfig.get_config_var("BINDIR"))
    ran = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", READ],
        env={"PATH": f"{home}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        str(tmp_path / "env" / "lib" / "penstock" / "__init__.py"),
        str(tmp_path / "env" / "lib" / "pyarrow" / "__init__.py"),
    ]


@pytest.mark.soak
def test_the_same_packages_make_the_same_bytes(tmp_path: Path) -> None:
    hashes = set()
    for name in ("a.tar.gz", "b.tar.gz"):
        pack(tmp_path / name)
        hashes.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())

    assert len(hashes) == 1

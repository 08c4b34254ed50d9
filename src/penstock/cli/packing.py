"""`penstock spark pack`: Penstock as an archive for a cluster whose machines do not have it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.jobs import require_spark
from penstock.cli.output import size


def pack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it: env.tar.gz.", dir_okay=False)
    ],
) -> None:
    """Pack Penstock for a cluster: spark-submit --archives env.tar.gz#env

    Executors then run with PYSPARK_PYTHON=./env/bin/python. Their machines need the same Python
    version on the PATH, and nothing else.
    """
    require_spark()
    from penstock.spark import packaging

    typer.echo(f"{file}: {size(packaging.pack(file))}")

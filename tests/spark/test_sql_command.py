"""`penstock sql` as a command of its own, from the start of Spark to the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.credentials import Credentials
from penstock.client.jetstream import JetStream
from penstock.testing.servers import PENSTOCK, environ, server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.exhaustive]

SECRET = "s3cret-token"

SCRIPT = """
SELECT sequence, value:n::int AS n FROM ORDERS WHERE sequence > 1 ORDER BY sequence;
DESCRIBE EXTENDED ORDERS;
EXPLAIN EXTENDED SELECT * FROM ORDERS;
SHOW TABLES;
SHOW TBLPROPERTIES penstock_tables.t1;
SET;
SELECT * FROM ORDRES;
SELECT 'not reached';
"""


def test_a_script_is_answered_in_json_without_secrets_and_ends_with_its_error(
    tmp_path: Path,
) -> None:
    settings = f"authorization {{ token: {SECRET} }}"
    with (
        server_process(PENSTOCK, settings=settings, store_dir=tmp_path / "store") as server,
        Client.connect(server.url, credentials=Credentials(token=SECRET), timeout_s=60) as client,
    ):
        streams = JetStream(client)
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        for number in range(3):
            streams.publish(b"orders.x", b'{"n": %d}' % number)

        ran = subprocess.run(
            [
                sys.executable, "-m", "penstock", "sql", "--json",
                "-s", server.url.replace("://", f"://{SECRET}@"),
                "--master", "local[1]", "--conf", "spark.driver.memory=512m",
            ],
            input=SCRIPT, capture_output=True, text=True, check=False, timeout=500, env=environ(),
        )  # fmt: skip

    assert ran.stderr == "penstock: no table ORDRES; did you mean ORDERS?\n"
    assert ran.returncode == 2
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert lines[:2] == [{"sequence": 2, "n": 1}, {"sequence": 3, "n": 2}]
    assert any("Physical Plan" in str(each.get("plan")) for each in lines)
    assert SECRET not in ran.stdout

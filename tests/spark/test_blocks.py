"""Block directories as tables, read by real Spark and compared with the store, row by row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = b"a secret of the tests"
COUNT = 3000


def make_store(path: Path, *, key: StoreKey | None = None, **config: object) -> None:
    """Make a stream ORDERS of 3,000 messages of 50 subjects, some of them removed."""
    settings = StoreConfig(name="ORDERS", block_bytes=16384, **config)  # type: ignore[arg-type]
    with FileStore.open(str(path), settings, key=key) as store:
        add(store, 0, COUNT)
        for seq in range(8, COUNT, 100):
            store.remove(seq)


def add(store: FileStore, first: int, end: int) -> None:
    for number in range(first, end):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
        store.store(b"orders.%d" % (number % 50), headers, b"payload %d" % number)


Told = tuple[int, str, int, bytes, tuple[str, ...]]


def stored(path: Path, key: StoreKey | None = None) -> list[Told]:
    """Return the messages of a store, by the store itself."""
    with FileStore.open(str(path), StoreConfig(name="ORDERS"), key=key) as store:
        found: list[Told] = []
        state = store.state()
        for seq in range(state.first_seq, state.last_seq + 1):
            if seq in store.deleted():
                continue
            message = store.load(seq)
            number = message.headers[18:].partition(b"\r\n")[0].decode()
            found.append(
                (
                    seq,
                    message.subject.decode(),
                    message.timestamp_ns,
                    message.payload,
                    (number,) if number else (),
                )
            )
        return found


def told(frame: DataFrame) -> list[Told]:
    rows = frame.select("sequence", "subject", "time_ns", "data", "headers.Number").collect()
    found = [(row[0], row[1], row[2], bytes(row[3]), tuple(row[4] or ())) for row in rows]
    return sorted(found)


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    options.setdefault("stream", "ORDERS")
    return spark.read.format("penstock-blocks").options(**options).load(str(path))


@pytest.mark.promise
def test_a_table_holds_what_the_store_holds(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path)

    frame = load(spark, tmp_path, minPartitions="5")

    assert frame.rdd.getNumPartitions() == 5
    assert told(frame) == stored(tmp_path)
    assert {row.stream for row in frame.select("stream").distinct().collect()} == {"ORDERS"}


@pytest.mark.promise
@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.NONE])
def test_compressed_and_encrypted_blocks_are_read_with_their_key(
    spark: SparkSession, tmp_path: Path, cipher: Cipher
) -> None:
    key = None if cipher is Cipher.NONE else StoreKey(SECRET)
    make_store(tmp_path / "s", key=key, cipher=cipher, compression=Compression.SNAPPY)
    (tmp_path / "key").write_bytes(SECRET)
    given = {} if key is None else {"keyFile": str(tmp_path / "key")}

    assert told(load(spark, tmp_path / "s", **given)) == stored(tmp_path / "s", key)


def test_a_wrong_key_is_told(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "s", key=StoreKey(SECRET), cipher=Cipher.CHACHA20_POLY1305)

    with pytest.raises(PySparkException, match="key"):
        load(spark, tmp_path / "s").count()


@pytest.mark.parametrize(
    ("options", "is_wanted"),
    [
        ({"subject": "orders.7"}, lambda row: row[1] == "orders.7"),
        ({"subject": "orders.1,orders.2"}, lambda row: row[1] in ("orders.1", "orders.2")),
        ({"subject": "orders.*"}, lambda _: True),
        ({"subject": "none.>"}, lambda _: False),
        ({"startingOffsets": "100", "endingOffsets": "200"}, lambda row: 100 <= row[0] < 200),
        ({"startingOffsets": "2990"}, lambda row: row[0] >= 2990),
        ({"endingTimestamp": "2001-01-01"}, lambda _: False),
        ({"startingTimestamp": "2001-01-01T00:00:00Z"}, lambda _: True),
    ],
)
def test_options_choose_messages(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], is_wanted: object
) -> None:
    make_store(tmp_path)
    assert callable(is_wanted)

    assert told(load(spark, tmp_path, **options)) == [
        row for row in stored(tmp_path) if is_wanted(row)
    ]


def test_a_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path)
    reading = spark.read.format("penstock-blocks").option("stream", "ORDERS")

    by_schema = reading.schema("sequence long, value string").load(str(tmp_path))
    by_option = load(spark, tmp_path, columns="size,sequence")
    as_text = load(spark, tmp_path, valueFormat="string", includeHeaders="false")

    assert by_schema.orderBy("sequence").first() == (1, "payload 0")
    assert by_option.orderBy("sequence").first() == (32, 1)
    assert as_text.columns == [
        "stream", "subject", "sequence", "timestamp", "time_ns", "value", "reply", "size",
        "_block", "_offset",
    ]  # fmt: skip


@pytest.mark.promise
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subjct": "a"}, "did you mean subject"),
        ({"startingOffsets": "soon"}, "neither 'earliest' nor a sequence"),
        ({"startingTimestamp": "soon"}, "is no time"),
        ({"columns": "sequense"}, "did you mean sequence"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"layout": "tar"}, "layout"),
        ({"subject": "a..b"}, "a..b"),
    ],
)
def test_a_wrong_option_is_named_before_any_work(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    make_store(tmp_path)

    with pytest.raises(PySparkException) as refused:
        load(spark, tmp_path, **options)

    assert reason in str(refused.value)


def test_a_batch_cannot_begin_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path)

    with pytest.raises(PySparkException, match="for following"):
        load(spark, tmp_path, startingOffsets="latest").count()


def test_a_folder_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no such folder"):
        load(spark, tmp_path / "none")


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(name="ORDERS")):
        pass

    assert told(load(spark, tmp_path)) == []


@pytest.mark.promise
def test_damage_fails_the_query_or_costs_itself_alone(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path)
    whole = stored(tmp_path)
    victim = load(spark, tmp_path).where("sequence = 1234").first()
    assert victim is not None
    with open(tmp_path / f"{victim._block:06d}.blk", "r+b") as file:
        file.seek(victim._offset + 30)
        file.write(b"\xff\xff\xff")

    with pytest.raises(PySparkException, match="onCorruptRecord=skip"):
        load(spark, tmp_path).count()
    assert told(load(spark, tmp_path, onCorruptRecord="skip")) == [
        row for row in whole if row[0] != 1234
    ]


def test_a_table_is_what_was_there_when_it_was_planned(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path)
    frame = load(spark, tmp_path)
    frame.rdd.getNumPartitions()
    before = stored(tmp_path)

    with FileStore.open(str(tmp_path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        add(store, COUNT, COUNT + 500)

    assert told(frame) == before


def test_executors_load_no_server_code() -> None:
    script = (
        "import sys, penstock.spark\n"
        "print(sorted(n for n in sys.modules if n.split('.')[:2] in (['penstock', p] for p in "
        "('server', 'api', 'monitor', 'consumer', 'stream', 'net', 'routing', 'store'))))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"

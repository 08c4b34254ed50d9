"""SQL over streams: `penstock sql "SELECT …"`, or a shell without a statement.

Every stream of the server, or of the directory tree, is a table under its own name. Spark is loaded
when the command runs. The JVM's own log goes into a file, which is shown if it
does not start. So the output is the result and nothing else.

Secrets never become options of tables: they travel in the environment, under names that Spark keeps
out of what it shows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import ConnectionOptions, KeyFile, with_server
from penstock.cli.output import Column, make_output, text
from penstock.cli.spark.jobs import Conf, Master, Remote, Session, require_spark, spark_session
from penstock.cli.store.sources import JSON_LINES, find_streams
from penstock.client.credentials import parse_url
from penstock.errors import PenstockError, QueryFailed, UsageError
from penstock.limits import SQL_ROWS_SHOWN_MAX

if TYPE_CHECKING:
    from penstock.spark.sql.catalog import Catalog, Table
    from penstock.spark.sql.results import Result

PASSWORD_VARIABLE = "PENSTOCK_SQL_PASSWORD"
TOKEN_VARIABLE = "PENSTOCK_SQL_TOKEN"
_LOG_LINES_SHOWN = 5


class Format(StrEnum):
    """What a result becomes."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Where results go, and as what."""

    format: Format
    output: Path | None
    rows_max: int | None


@with_server
def sql(
    connection: ConnectionOptions,
    statement: Annotated[
        str | None, typer.Argument(help="What to ask; several with ; between.", show_default=False)
    ] = None,
    path: Annotated[
        str,
        typer.Option(
            "--path",
            metavar="DIR",
            help="Read directories of streams and archives below this one; no server is asked.",
            show_default=False,
        ),
    ] = "",
    key_file: KeyFile = None,
    format: Annotated[Format, typer.Option("--format", help="What results become.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="ROWS",
            help=f"Rows at most; 0 for all, a table shows {SQL_ROWS_SHOWN_MAX:,}.",
            show_default=False,
        ),
    ] = None,
    infer: Annotated[
        bool, typer.Option("--infer", help="Give the fields of JSON payloads columns of their own.")
    ] = False,
    master: Master = "local[*]",
    remote: Remote = "",
    conf: Conf = None,
) -> None:
    """Ask streams in SQL; without a statement, statements are read from a prompt.

    \b
    penstock sql 'SELECT subject, count(*) FROM ORDERS GROUP BY subject'
    penstock sql "SELECT value:customer.id, value:price::double FROM ORDERS WHERE sequence > 1000"
    penstock sql --infer 'SELECT region, sum(price) FROM ORDERS GROUP BY region'
    penstock sql --path /data/jetstream --format parquet -o all.parquet 'SELECT * FROM ORDERS'
    echo 'SELECT 1' | penstock sql --json

    Each stream is a table with the columns stream, subject, sequence, timestamp, time_ns, headers,
    size, value (the payload as JSON) and data (its bytes); a bucket KV_x has key and value.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage or wrong SQL, 3 could not open.
    """
    require_spark()
    wanted = _wanted(Format.JSON if as_json else format, output, limit)
    with tempfile.TemporaryDirectory(prefix="penstock-sql-") as folder:
        given = _with_secrets(connection, is_remote=bool(remote))
        os.environ |= given.secrets
        ours = {} if remote else _conf(given, folder, is_local=master.startswith("local"))
        settings = [*(f"{key}={value}" for key, value in ours.items()), *(conf or [])]
        session = Session(master, remote, settings, as_json)
        tables = _tables(connection, given, path, key_file)
        with _opened(session, tables, Path(folder) / "spark.log", infer=infer) as catalog:
            _run(catalog, statement, wanted)


def _wanted(format: Format, output: Path | None, limit: int | None) -> QueryOptions:
    if format is Format.PARQUET and output is None:
        raise UsageError("--format parquet needs --output FILE")
    if output is not None and format is Format.TABLE:
        raise UsageError("--output needs --format csv, json or parquet")
    return QueryOptions(format, output, limit)


# The session


@dataclass(frozen=True, slots=True, repr=False)
class _ServerAccess:
    """How Spark's side reaches the server: options that may be seen, and the environment."""

    options: dict[str, str]
    secrets: dict[str, str]


def _with_secrets(connection: ConnectionOptions, *, is_remote: bool) -> _ServerAccess:
    """Take secrets out of the options; raise UsageError if they could not reach the executors."""
    urls = [parse_url(each.strip()) for each in connection.server.split(",")]
    options = {"servers": ",".join(f"{'tls' if each.is_tls else 'nats'}://{each}" for each in urls)}
    in_url = urls[0].credentials
    user, password = connection.user or in_url.user, connection.password or in_url.password
    token = connection.token or in_url.token
    if connection.user and not (connection.password or connection.token):
        user, token = "", connection.user
    options |= {
        name: str(Path(file).resolve())
        for name, file in (
            ("credsFile", connection.creds),
            ("nkeySeedFile", connection.nkey),
            ("tls.ca", connection.tls_ca),
            ("tls.cert", connection.tls_cert),
            ("tls.key", connection.tls_key),
        )
        if file
    }
    secrets = {}
    if not (connection.creds or connection.nkey):
        if token:
            options["tokenEnv"] = TOKEN_VARIABLE
            secrets[TOKEN_VARIABLE] = token
        elif user:
            options |= {"user": user, "passwordEnv": PASSWORD_VARIABLE}
            secrets[PASSWORD_VARIABLE] = password
    if secrets and is_remote:
        raise UsageError(
            "a password or token does not travel to a Spark Connect server: use --creds or --nkey "
            "with a file that is there too"
        )
    options["requestTimeoutMs"] = str(max(round(connection.timeout_s * 1000), 30_000))
    return _ServerAccess(options, secrets)


def _conf(given: _ServerAccess, folder: str, *, is_local: bool) -> dict[str, str]:
    from penstock.spark.sql.catalog import SESSION_CONF

    ours = {**SESSION_CONF, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    if not is_local:
        # Executors elsewhere do not have our environment. Spark does not show such names' values.
        ours |= {f"spark.executorEnv.{name}": value for name, value in given.secrets.items()}
    return ours


@contextlib.contextmanager
def _opened(session: Session, tables: list[Table], log: Path, *, infer: bool) -> Iterator[Catalog]:
    """Open a session whose JVM is quiet; raise with its log if it does not start."""
    from penstock.spark.sql.catalog import Catalog

    opening = spark_session(session, "penstock sql")
    try:
        with _stderr_into(log):
            spark = opening.__enter__()
    except (PenstockError, OSError):
        raise
    except Exception as error:
        raise QueryFailed(f"Spark does not start: {_last_lines(log) or error}") from error
    try:
        if not session.remote:
            spark.sparkContext.setLogLevel("OFF")
        # Spark repeats every error of ours with a page of calls.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        yield Catalog(spark, tables, is_inferring=infer)
    finally:
        opening.__exit__(None, None, None)


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    # The JVM and its workers keep the stderr that they are started with.
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _last_lines(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()
    return " ".join(line.strip() for line in lines[-_LOG_LINES_SHOWN:])


# Tables


def _tables(
    connection: ConnectionOptions, given: _ServerAccess, path: str, key_file: Path | None
) -> list[Table]:
    from penstock.spark.sql import catalog as sql_tables

    if path:
        return tables_below(path, {"keyFile": str(key_file)} if key_file else {})
    # Asked once through the command's own connection, whose errors say what to do.
    connection.connect().close()
    return sql_tables.tables_of_server(given.options)


def tables_below(root: str, options: dict[str, str]) -> list[Table]:
    """Return the tables of the streams and archives in a tree; raise UsageError without any."""
    from penstock.spark.archives.folder import MANIFESTS
    from penstock.spark.folder import MESSAGES_NAME, stream_name
    from penstock.spark.sql.catalog import table_of_archive, table_of_directory

    if "://" in root:
        return [table_of_directory(stream_name(root), root, options)]
    top = Path(root).resolve()
    if not top.is_dir():
        raise UsageError(f"{root}: no such directory")
    streams = [Path(path) for path, layout in find_streams(str(top)) if layout != JSON_LINES]
    archives = [
        each.parent
        for each in sorted(top.rglob(MANIFESTS))
        if each.is_dir() and any(each.glob("*.json"))
    ]
    if not streams and not archives:
        raise UsageError(f"{root}: no stream and no archive is below it")
    names = {path: stream_name(str(path)) for path in (*streams, *archives)}
    met = Counter(names.values())
    # Equal names, as in several accounts, are told apart by their paths.
    names |= {
        path: str(path.relative_to(top)).removesuffix(f"/{MESSAGES_NAME}")
        for path, name in names.items()
        if met[name] > 1
    }
    return [
        *(table_of_directory(names[path], str(path), options) for path in streams),
        *(table_of_archive(names[path], str(path)) for path in archives),
    ]


# Statements and results


def _run(catalog: Catalog, statement: str | None, wanted: QueryOptions) -> None:
    from penstock.cli.spark.sql_shell import run_script, run_shell

    def show(asked: str) -> None:
        answer(catalog, asked, wanted)

    if statement is not None:
        run_script(statement, show)
    elif sys.stdin.isatty():
        run_shell(catalog.names(), show)
    else:
        run_script(sys.stdin.read(), show)


def answer(catalog: Catalog, statement: str, wanted: QueryOptions) -> None:
    """Run a statement and write its result; raise UsageError and QueryFailed."""
    from penstock.spark.failures import FAILURES, as_ours
    from penstock.spark.sql.results import Result

    is_shown = wanted.format is Format.TABLE
    rows_max = wanted.rows_max
    if rows_max is None:
        rows_max = SQL_ROWS_SHOWN_MAX if is_shown else 0
    try:
        # One row more tells whether there are more.
        result = Result(
            catalog.frame(statement), rows_max=rows_max + 1 if is_shown and rows_max else rows_max
        )
        if is_shown:
            _show(result, rows_max)
        else:
            _write(result, wanted)
    except FAILURES as error:
        raise as_ours(error, catalog) from None


def _show(result: Result, rows_max: int) -> None:
    from penstock.spark.sql.results import plain

    def shown(value: Any) -> str:
        if isinstance(value, bytes):
            return text(value.decode("utf-8", "backslashreplace"))
        return text(plain(value))

    if not result.names:
        return
    rows = list(result.rows())
    is_more = bool(rows_max) and len(rows) > rows_max
    rows = rows[:rows_max] if is_more else rows
    numbers = [_is_number([row[place] for row in rows]) for place in range(len(result.names))]
    columns = [
        Column(str(place), text(name), shown, right=numbers[place])
        for place, name in enumerate(result.names)
    ]
    output = make_output(as_json=False)
    output.rows(
        "rows", columns, [dict(zip(map(str, range(len(row))), row, strict=True)) for row in rows]
    )
    if is_more:
        output.say(f"The first {rows_max:,} rows; --limit 0 shows all, --format csv writes them.")


def _is_number(values: list[Any]) -> bool:
    known = [each for each in values if each is not None]
    return bool(known) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in known
    )


def _write(result: Result, wanted: QueryOptions) -> None:
    write = {
        Format.CSV: result.write_csv,
        Format.JSON: result.write_json,
        Format.PARQUET: result.write_parquet,
    }[wanted.format]
    if not result.names:
        return
    if wanted.output is None:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    # A result that is not whole never stands under its name.
    unfinished = wanted.output.with_name(f".{wanted.output.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            write(file)
        unfinished.replace(wanted.output)
    finally:
        unfinished.unlink(missing_ok=True)

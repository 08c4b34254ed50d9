"""Messages for the comparison with the real server: every header, right and wrong."""

from __future__ import annotations

import itertools

from tests.stream.published import Case, Publish, case, pub

ONE_MINUTE = 60_000_000_000
MEMORY = {"storage": "memory"}


def numbered(*fields: tuple[str, str]) -> tuple[Publish, ...]:
    """Return a message for each value of a header."""
    return tuple(pub("s.a", **{name: value}) for name, value in fields)


def batch(batch_id: str, *messages: Publish) -> tuple[Publish, ...]:
    """Return an atomic batch; the last message commits it."""
    return tuple(
        Publish(
            each.subject,
            each.body,
            each.headers
            | {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
            | ({"Nats-Batch-Commit": "1"} if number == len(messages) else {}),
            each.reply,
        )
        for number, each in enumerate(messages, 1)
    )


def fast(
    subject: str,
    number: int,
    operation: int,
    /,
    *,
    batch_id: str = "f1",
    flow: str = "10",
    gaps: str = "fail",
    body: bytes = b"x",
    **headers: str,
) -> Publish:
    reply = f"_IN.fast.{batch_id}.{flow}.{gaps}.{number}.{operation}.$FI"
    return pub(subject, body, reply=reply, **headers)


PLAIN = (
    case("plain messages", pub("s.a"), pub("s.b", b""), pub("s.c", reply=""), pub("s.d")),
    case("own headers", pub("s.a", raw="NATS/1.0\r\nA: b\r\nC:d\r\n\r\n"), pub("s.b")),
    case("empty headers", pub("s.a", raw="NATS/1.0\r\n\r\n")),
    case("a status", pub("s.a", raw="NATS/1.0 503 No\r\n\r\n")),
    case("a status and headers", pub("s.a", raw="NATS/1.0 503\r\nA: b\r\n\r\n")),
    case("request info is taken out", pub("s.a", Request_Info="{}", Msg_Id="q")),
    case("plain messages in memory", pub("s.a"), pub("s.b", A="b"), **MEMORY),
    case("size", pub("s.a", b"12345"), pub("s.a", b"123456"), max_msg_size=5),
    case("size with headers", pub("s.a", b"1", A="b"), max_msg_size=20),
    case("headers too long", pub("s.a", raw="NATS/1.0\r\nA: " + "x" * 66_000 + "\r\n\r\n")),
    case("discard new", pub("s.a"), pub("s.b"), pub("s.c"), max_msgs=2, discard="new"),
    case("discard new bytes", pub("s.a", b"x" * 60), pub("s.b"), max_bytes=100, discard="new"),
    case(
        "discard new per subject",
        *(pub("s.a"), pub("s.a"), pub("s.b"), pub("s.a", Rollup="sub"), pub("s.a")),
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
    ),
    case("discard old", pub("s.a"), pub("s.b"), pub("s.c"), max_msgs=2),
    case("per subject", pub("s.a"), pub("s.b"), pub("s.a"), max_msgs_per_subject=1),
    case("interest without any", pub("s.a"), pub("s.b", Msg_Id="1"), retention="interest"),
    case(
        "transformed",
        *(pub("s.a"), pub("s.b", Msg_Id="1"), pub("s.c.d")),
        subject_transform={"src": "s.*", "dest": "t.{{wildcard(1)}}"},
    ),
)

IDS = (
    case("ids", *numbered(("Msg_Id", "1"), ("Msg_Id", "2"), ("Msg_Id", "1"), ("Msg_Id", "2"))),
    case("ids of other subjects", pub("s.a", Msg_Id="1"), pub("s.b", Msg_Id="1")),
    case("an id with spaces", pub("s.a", raw="NATS/1.0\r\nNats-Msg-Id:   1 \r\n\r\n")),
    case("an empty id", pub("s.a", Msg_Id=""), pub("s.a", Msg_Id="")),
    case("ids in memory", pub("s.a", Msg_Id="1"), pub("s.b", Msg_Id="1"), **MEMORY),
    case(
        "ids twice",
        pub("s.a", raw="NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n\r\n"),
        pub("s.a", Msg_Id="2"),
        pub("s.a", Msg_Id="1"),
    ),
    case(
        "names that only look like it",
        pub("s.a", raw="NATS/1.0\r\nX-Nats-Msg-Id: 1\r\nNats-Msg-Idx: 1\r\n\r\n"),
        pub("s.a", raw="NATS/1.0\r\nnats-msg-id: 1\r\n\r\n"),
        pub("s.a", Msg_Id="1"),
    ),
    case(
        "the last id",
        *(pub("s.a", Expected_Last_Msg_Id="1"), pub("s.a", Msg_Id="1")),
        *(pub("s.a", Expected_Last_Msg_Id="1", Msg_Id="2"), pub("s.a", Expected_Last_Msg_Id="1")),
        *(pub("s.b"), pub("s.a", Expected_Last_Msg_Id="2"), pub("s.a", Expected_Last_Msg_Id="")),
    ),
)

EXPECTATIONS = (
    case("a stream", *numbered(("Expected_Stream", "S"), ("Expected_Stream", "T"))),
    case(
        "a last sequence",
        *numbered(*(("Expected_Last_Sequence", each) for each in ("0", "0", "1", "x", "-1", ""))),
        pub("s.a", Expected_Last_Sequence="18446744073709551618"),
    ),
    case(
        "a subject's last sequence",
        *(pub("s.a", Expected_Last_Subject_Sequence="0"), pub("s.b")),
        *(pub("s.a", Expected_Last_Subject_Sequence="1"), pub("s.c")),
        *(pub("s.a", Expected_Last_Subject_Sequence="1"), pub("s.d")),
        pub("s.a", Expected_Last_Subject_Sequence="0"),
        pub("s.a", Expected_Last_Subject_Sequence="99999999999999999999999"),
    ),
    case(
        "another subject's last sequence",
        *(pub("s.a"), pub("s.b"), pub("s.c.1")),
        pub(
            "s.x", Expected_Last_Subject_Sequence="2", Expected_Last_Subject_Sequence_Subject="s.b"
        ),
        pub(
            "s.x",
            Expected_Last_Subject_Sequence="3",
            Expected_Last_Subject_Sequence_Subject="s.c.*",
        ),
        pub(
            "s.x", Expected_Last_Subject_Sequence="3", Expected_Last_Subject_Sequence_Subject="s.b"
        ),
        pub("s.x", Expected_Last_Subject_Sequence_Subject="s.b"),
        pub(
            "s.x", Expected_Last_Subject_Sequence="0", Expected_Last_Subject_Sequence_Subject="s..b"
        ),
    ),
    case(
        "which of two is broken first",
        pub("s.a", Expected_Stream="T", Expected_Last_Sequence="7", Msg_Id="1"),
        pub("s.a", Msg_Id="1"),
        pub("s.a", Expected_Last_Sequence="7", Msg_Id="1"),
        pub("s.a", Expected_Last_Msg_Id="7", Msg_Id="1"),
        pub("s.a", Expected_Last_Msg_Id="7", Rollup="all"),
        pub("s.a", Rollup="all", TTL="1s"),
        pub("s.a", TTL="1x", Rollup="all"),
        pub("s.a", TTL="1x", Stream_Source="S 1"),
        pub("s.a", Stream_Source="S 1", Msg_Id="1"),
    ),
)

ROLLUPS = (
    case("rollups refused", *numbered(("Rollup", "sub"), ("Rollup", "all"), ("Rollup", "x"))),
    case(
        "rollups",
        *(pub("s.a"), pub("s.b"), pub("s.a"), pub("s.a", Rollup="SUB"), pub("s.c")),
        *(pub("s.a", Rollup="nothing"), pub("s.b", Rollup="all"), pub("s.b", Rollup="")),
        allow_rollup_hdrs=True,
    ),
    case(
        "rollups in memory",
        pub("s.a"),
        pub("s.b"),
        pub("s.b", Rollup="all"),
        allow_rollup_hdrs=True,
        **MEMORY,
    ),
    case(
        "rollups of a pattern",
        *(pub("s.a"), pub("s.b"), pub("s.c.d"), pub("s.*", Rollup="sub"), pub("s.a")),
        *(pub("s.*", Rollup="sub"), pub("s.>", Rollup="sub")),
        allow_rollup_hdrs=True,
    ),
    case(
        "rollups without purging",
        pub("s.a", Rollup="sub"),
        deny_purge=True,
        allow_rollup_hdrs=False,
    ),
)

LIFETIMES = (
    case(
        "lifetimes refused",
        *numbered(
            *(("TTL", each) for each in ("1s", "never", "1", "0", "00", "x", "500ms", "-1", ""))
        ),
    ),
    case(
        "lifetimes",
        *numbered(
            *(
                ("TTL", each)
                for each in (
                    "1h",
                    "NEVER",
                    "3600",
                    "0",
                    "00",
                    "x",
                    "500ms",
                    "-1",
                    "",
                    "1h30m",
                    "3601.5s",
                    "-1h",
                )
            )
        ),
        allow_msg_ttl=True,
    ),
    case(
        "lifetimes with markers",
        *numbered(("TTL", "1h"), ("TTL", "3h"), ("TTL", "never")),
        allow_msg_ttl=True,
        subject_delete_marker_ttl=2 * 60 * ONE_MINUTE,
        allow_rollup_hdrs=True,
    ),
    case(
        "lifetimes with markers of one",
        *numbered(("TTL", "1h")),
        allow_msg_ttl=True,
        subject_delete_marker_ttl=2 * 60 * ONE_MINUTE,
        allow_rollup_hdrs=True,
        max_msgs_per_subject=1,
    ),
)

COUNTERS = (
    case("counters refused", *numbered(("Incr", "1"), ("Incr", "x"))),
    case(
        "counters",
        *(
            pub("s.a", b"", Incr=each)
            for each in (
                "1",
                "+2",
                "-5",
                "0",
                "007",
                "-0",
                "x",
                "1.5",
                "1e5",
                " 7",
                "1_000",
                "",
                "9" * 5000,
            )
        ),
        *(pub("s.a", b""), pub("s.a", b"x", Incr="1"), pub("s.b", b"", Incr="-1")),
        *(
            pub("s.a", b"", Incr="1", **{name: "1"})
            for name in (
                "Rollup",
                "Expected_Stream",
                "Expected_Last_Msg_Id",
                "Expected_Last_Sequence",
                "Expected_Last_Subject_Sequence",
                "Expected_Last_Subject_Sequence_Subject",
            )
        ),
        *(pub("s.a", b"", Incr="1", Msg_Id="1"), pub("s.a", b"", Incr="1", Msg_Id="1")),
        allow_msg_counter=True,
    ),
    case(
        "a counter's size",
        pub("s.a", b"", Incr="9" * 40),
        pub("s.a", b"", Incr="1"),
        allow_msg_counter=True,
        max_msg_size=50,
    ),
)

BATCHES = (
    case("batches refused", *batch("b", pub("s.a"), pub("s.b"))),
    case(
        "a batch",
        pub("s.z"),
        *batch("b", pub("s.a"), pub("s.b"), pub("s.c")),
        pub("s.d"),
        allow_atomic=True,
    ),
    case("a batch in memory", *batch("b", pub("s.a"), pub("s.b")), allow_atomic=True, **MEMORY),
    case(
        "a batch of one",
        *batch("b", pub("s.a", Msg_Id="1")),
        pub("s.a", Msg_Id="1"),
        allow_atomic=True,
    ),
    case(
        "silent members",
        *batch("b", pub("s.a", reply=""), pub("s.b", reply=""), pub("s.c")),
        allow_atomic=True,
    ),
    case(
        "a batch's id", *batch("x" * 65, pub("s.a")), *batch('a"b', pub("s.a")), allow_atomic=True
    ),
    case(
        "no number",
        pub("s.a", Batch_Id="b"),
        pub("s.a", Batch_Id="b", Batch_Sequence="x"),
        pub("s.a", Batch_Id="b", Batch_Sequence="99999999999999999999"),
        pub("s.a", Batch_Id="", Batch_Sequence="1"),
        allow_atomic=True,
    ),
    case(
        "not from the first",
        pub("s.a", Batch_Id="b", Batch_Sequence="2"),
        pub("s.a", Batch_Id="b", Batch_Sequence="1001"),
        pub("s.a", Batch_Id="b", Batch_Sequence="1001", Batch_Commit="eob"),
        pub("s.a", Batch_Id="b", Batch_Sequence="1002", Batch_Commit="eob"),
        allow_atomic=True,
    ),
    case(
        "a gap",
        pub("s.a", Batch_Id="b", Batch_Sequence="1"),
        pub("s.a", Batch_Id="b", Batch_Sequence="3"),
        pub("s.a", Batch_Id="b", Batch_Sequence="2"),
        allow_atomic=True,
    ),
    case(
        "the wrong word",
        pub("s.a", Batch_Id="b", Batch_Sequence="1", Batch_Commit="x"),
        pub("s.a", Batch_Id="b", Batch_Sequence="1", Batch_Commit=""),
        allow_atomic=True,
    ),
    case(
        "an end",
        pub("s.a", Batch_Id="b", Batch_Sequence="1", Batch_Commit="eob"),
        pub("s.a", Batch_Id="b", Batch_Sequence="1"),
        pub("s.b", Batch_Id="b", Batch_Sequence="2"),
        pub("s.c", Batch_Id="b", Batch_Sequence="3", Batch_Commit="eob"),
        allow_atomic=True,
    ),
    case(
        "levels",
        *batch("b", pub("s.a", Required_Api_Level="1"), pub("s.b")),
        *batch("c", pub("s.a", Required_Api_Level="99"), pub("s.b")),
        allow_atomic=True,
    ),
    case(
        "ids in a batch",
        pub("s.a", Msg_Id="1"),
        *batch("b", pub("s.a", Msg_Id="2"), pub("s.b", Msg_Id="2")),
        *batch("c", pub("s.a", Msg_Id="1")),
        *batch("d", pub("s.a", Msg_Id="3")),
        allow_atomic=True,
    ),
    case(
        "expectations in a batch",
        pub("s.a"),
        *batch("b", pub("s.a", Expected_Last_Sequence="1"), pub("s.b")),
        *batch("c", pub("s.a"), pub("s.b", Expected_Last_Sequence="4")),
        *batch("d", pub("s.a"), pub("s.b", Expected_Last_Sequence="3")),
        *batch("e", pub("s.c", Expected_Last_Subject_Sequence="0"), pub("s.d")),
        *batch("f", pub("s.c", Expected_Last_Subject_Sequence="9")),
        *batch("g", pub("s.c"), pub("s.c", Expected_Last_Subject_Sequence="4")),
        *batch("h", pub("s.c", Expected_Last_Msg_Id="4")),
        *batch("i", pub("s.c", Expected_Stream="T")),
        allow_atomic=True,
    ),
    case(
        "rollups in a batch",
        pub("s.a"),
        pub("s.b"),
        *batch("b", pub("s.a", Rollup="sub"), pub("s.a"), pub("s.b", Rollup="sub")),
        *batch("c", pub("s.a"), pub("s.a", Rollup="sub")),
        *batch("d", pub("s.a"), pub("s.a", Rollup="all")),
        *batch("e", pub("s.a", Rollup="all"), pub("s.c")),
        *batch("f", pub("s.a", Rollup="x"), pub("s.c")),
        allow_atomic=True,
        allow_rollup_hdrs=True,
    ),
    case(
        "lifetimes in a batch",
        *batch("b", pub("s.a", TTL="1h"), pub("s.b", TTL="x")),
        *batch("c", pub("s.a", TTL="1h"), pub("s.b", TTL="2h")),
        allow_atomic=True,
        allow_msg_ttl=True,
    ),
    case("lifetimes refused in a batch", *batch("b", pub("s.a", TTL="1h")), allow_atomic=True),
    case(
        "counters in a batch",
        *batch(
            "b", pub("s.a", b"", Incr="1"), pub("s.a", b"", Incr="2"), pub("s.b", b"", Incr="5")
        ),
        *batch("c", pub("s.a", b"", Incr="1"), pub("s.a", b"")),
        *batch("d", pub("s.a", b"", Incr="x")),
        *batch("e", pub("s.a", b"", Incr="-7")),
        allow_atomic=True,
        allow_msg_counter=True,
    ),
    case(
        "no room for a batch",
        pub("s.a"),
        *batch("b", pub("s.a"), pub("s.b")),
        *batch("c", pub("s.a")),
        allow_atomic=True,
        discard="new",
        max_msgs=2,
    ),
    case(
        "no room under a subject",
        pub("s.a"),
        *batch("b", pub("s.b"), pub("s.b")),
        *batch("c", pub("s.a")),
        *batch("d", pub("s.c")),
        allow_atomic=True,
        discard="new",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
    ),
    case(
        "a large member", *batch("b", pub("s.a", b"x" * 200)), allow_atomic=True, max_msg_size=150
    ),
    case(
        "a batch is transformed",
        *batch("b", pub("s.a"), pub("s.b")),
        allow_atomic=True,
        subject_transform={"src": "s.*", "dest": "t.{{wildcard(1)}}"},
    ),
    case(
        "a thousand and one",
        *(pub("s.a", Batch_Id="b", Batch_Sequence=str(number)) for number in range(1, 1002)),
        allow_atomic=True,
    ),
)

FAST = (
    case("fast refused", fast("s.a", 1, 0), fast("s.a", 1, 2)),
    case(
        "fast",
        *(fast("s.a", number, 0 if number == 1 else 1) for number in range(1, 26)),
        fast("s.b", 26, 2),
        allow_batched=True,
    ),
    case(
        "fast with an end",
        fast("s.a", 1, 0),
        fast("s.a", 2, 1),
        fast("s.a", 3, 3),
        allow_batched=True,
    ),
    case("fast of one", fast("s.a", 1, 2), allow_batched=True),
    case(
        "fast flow",
        *(fast("s.a", number, 0 if number == 1 else 1, flow="2") for number in range(1, 10)),
        fast("s.a", 9, 4),
        allow_batched=True,
    ),
    case(
        "two fast",
        fast("s.a", 1, 0),
        fast("s.a", 1, 0, batch_id="f2"),
        *itertools.chain.from_iterable(
            (fast("s.a", number, 1), fast("s.a", number, 1, batch_id="f2"))
            for number in range(2, 30)
        ),
        allow_batched=True,
    ),
    case(
        "fast replies that are none",
        *(
            pub("s.a", reply=f"_IN.{each}.$FI")
            for each in (
                "x",
                "b.10.fail.1.5",
                "b.10.fail.0.0",
                "b.10.fail.1.1",
                "b.10.fail.2.0",
                "b.10.fail.1.3",
                "b.10.maybe.1.0",
                "b.10.fail.x.0",
                "b.10.fail.1.x",
                "b.10.fail.18446744073709551615.1",
                "b.x.fail.1.2",
                "b.0.fail.1.2",
                "b.70000.fail.1.0",
                "b.70000.fail.2.2",
            )
        ),
        allow_batched=True,
    ),
    case("fast ids", fast("s.a", 1, 0, batch_id="x" * 65), fast("s.a", 2, 1), allow_batched=True),
    case("a fast gap", fast("s.a", 1, 0), fast("s.a", 3, 1), fast("s.a", 4, 1), allow_batched=True),
    case(
        "a fast gap that is fine",
        fast("s.a", 1, 0, gaps="ok"),
        fast("s.a", 3, 1, gaps="ok"),
        fast("s.a", 7, 4, gaps="ok"),
        fast("s.a", 8, 2, gaps="ok"),
        allow_batched=True,
    ),
    case(
        "a fast step back",
        fast("s.a", 1, 0),
        fast("s.a", 2, 1),
        fast("s.a", 2, 1),
        allow_batched=True,
    ),
    case(
        "a fast step back that is fine",
        *(fast("s.a", 1, 0, gaps="ok"), fast("s.a", 2, 1, gaps="ok"), fast("s.a", 3, 1, gaps="ok")),
        *(fast("s.a", 2, 1, gaps="ok"), fast("s.a", 3, 1, gaps="ok"), fast("s.a", 5, 2, gaps="ok")),
        allow_batched=True,
    ),
    case(
        "a ping ahead", fast("s.a", 1, 0), fast("s.a", 5, 4), fast("s.a", 2, 1), allow_batched=True
    ),
    case(
        "fast refusals",
        fast("s.a", 1, 0),
        fast("s.a", 2, 1, Expected_Last_Sequence="9"),
        fast("s.a", 3, 1),
        allow_batched=True,
    ),
    case(
        "a fast refusal at once",
        fast("s.a", 1, 0, Expected_Last_Sequence="9"),
        fast("s.a", 2, 1),
        allow_batched=True,
    ),
    case(
        "fast refusals that are fine",
        fast("s.a", 1, 0, gaps="ok", Expected_Stream="T"),
        fast("s.a", 2, 1, gaps="ok"),
        fast("s.a", 3, 1, gaps="ok", Expected_Stream="T"),
        fast("s.a", 4, 2, gaps="ok", Expected_Stream="T"),
        allow_batched=True,
    ),
    case(
        "fast duplicates",
        pub("s.a", Msg_Id="1"),
        fast("s.a", 1, 0),
        fast("s.a", 2, 1, Msg_Id="1"),
        fast("s.a", 3, 2, Msg_Id="1"),
        fast("s.a", 1, 2, Msg_Id="1"),
        allow_batched=True,
    ),
    case(
        "fast levels",
        fast("s.a", 1, 0, Required_Api_Level="1"),
        fast("s.a", 2, 1, Required_Api_Level="99"),
        allow_batched=True,
    ),
    case(
        "a large fast member",
        fast("s.a", 1, 0, body=b"x" * 20),
        allow_batched=True,
        max_msg_size=10,
    ),
)

AT = "@at 2099-01-01T00:00:00Z"
SCHEDULED = {"allow_msg_schedules": True, "allow_msg_ttl": True}
SCHEDULES = (
    case(
        "schedules refused",
        pub("s.a", Schedule=AT, Schedule_Target="s.b"),
        pub("s.a", Schedule="x"),
        pub("s.a", Scheduler="s.x", Schedule_Next="purge"),
        pub("s.a", Scheduler="s.x"),
        pub("s.a", Schedule_Next="x"),
    ),
    case(
        "schedules",
        *(
            pub("s.a", Schedule=each, Schedule_Target="s.b")
            for each in (
                AT,
                "@at 2099",
                "@at ",
                "@every 1h",
                "@every 1ms",
                "@every x",
                "@hourly",
                "@weekly",
                "@never",
                "* * * * *",
                "0 0 0 1 1 *",
                "0 0 0 30 2 *",
                "60 * * * * *",
                "*/0 * * * * *",
                "0 0 12 ? JAN mon-FRI",
                "0 0 12 * * 7",
                "0 0 0 1-5/2 * *",
                "0 0 0 5-1 * *",
                "1-2-3 * * * * *",
                "",
                "@at 0001-01-01T00:00:00Z",
                "0,30 0 0 * * *",
                "a * * * * *",
            )
        ),
        **SCHEDULED,
    ),
    case(
        "time zones",
        *(
            pub("s.a", Schedule=pattern, Schedule_Target="s.b", Schedule_Time_Zone=zone)
            for pattern, zone in (
                ("@daily", "Europe/Berlin"),
                ("@daily", "Nowhere/Else"),
                ("@daily", ""),
                ("@daily", "UTC"),
                ("@every 1h", "UTC"),
                (AT, "UTC"),
                ("@daily", "../etc"),
                ("@daily", "Local"),
            )
        ),
        **SCHEDULED,
    ),
    case(
        "targets",
        *(
            pub("s.a", Schedule=AT, Schedule_Target=target, Schedule_Source=source)
            for target, source in (
                ("s.b", ""),
                ("", ""),
                ("s.a", ""),
                ("s.*", ""),
                ("t.b", ""),
                ("s.b", "s.c"),
                ("s.b", "s.b"),
                ("s.b", "s.a"),
                ("s.b", "s.*"),
                ("s.b", "t.c"),
                ("s..b", ""),
            )
        ),
        **SCHEDULED,
    ),
    case(
        "what schedules bring",
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Schedule_TTL="x"),
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Schedule_TTL="1h"),
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Schedule_Rollup="all"),
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Schedule_Rollup="sub"),
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Rollup="sub"),
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Rollup="all"),
        **SCHEDULED,
    ),
    case(
        "a lifetime where there is none",
        pub("s.a", Schedule=AT, Schedule_Target="s.b", Schedule_TTL="1h"),
        allow_msg_schedules=True,
    ),
    case(
        "schedules are ended",
        pub("s.a", Schedule=AT, Schedule_Target="s.b"),
        pub("s.p"),
        *(
            pub("s.c", Scheduler=scheduler, Schedule_Next=following)
            for scheduler, following in (
                ("s.a", "x"),
                ("", "purge"),
                ("s.c", "purge"),
                ("s.*", "purge"),
                ("s.p", "purge"),
                ("s.a", ""),
                ("s.q", "purge"),
                ("s.a", "purge"),
            )
        ),
        **SCHEDULED,
    ),
    case(
        "schedules in a batch",
        *batch(
            "b",
            pub("s.a", Schedule=AT, Schedule_Target="s.b"),
            pub("s.p"),
            pub("s.c", Scheduler="s.a", Schedule_Next="purge"),
        ),
        *batch("c", pub("s.p"), pub("s.c", Scheduler="s.p", Schedule_Next="purge")),
        *batch("d", pub("s.p", Schedule=AT)),
        allow_atomic=True,
        **SCHEDULED,
    ),
)

CASES: list[Case] = [
    *PLAIN,
    *IDS,
    *EXPECTATIONS,
    *ROLLUPS,
    *LIFETIMES,
    *COUNTERS,
    *BATCHES,
    *FAST,
    *SCHEDULES,
]

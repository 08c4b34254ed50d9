"""The scripts of `test_protocol`, by subject; each is what one or more clients send."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.transcripts import Step, say

Script = str | bytes | list[Step]
Scripts = Sequence[Script]

QUIET = 'CONNECT {"verbose":false,"pedantic":false}\r\n'
LAX = 'CONNECT {"pedantic":false}\r\n'
_BOTH = '"verbose":false,"pedantic":false,"headers":true,"no_responders":true'
FULL = f'CONNECT {{{_BOTH},"protocol":1}}\r\n'
DEAF = f'CONNECT {{{_BOTH},"echo":false}}\r\n'
HEADERS = "NATS/1.0\r\n\r\n"


def half(data: str) -> list[Step]:
    """Return a script that ends within an operation."""
    return [say(data, wait=False)]


OPERATIONS: Scripts = [
    "PING\r\n",
    "ping\r\n",
    "PiNg \t x\r\n",
    "PING\n",
    "PONG\r\n",
    "+OK\r\n",
    "+ok x\r\n",
    "-ERR 'x'\r\n",
    "-err\r\n",
    "-ERR \r\n",
    "INFO {}\r\n",
    "INFO{}\r\n",
    "INFO\r\n",
    "INFO null\r\n",
    "INFO [1]\r\n",
    "INFO {x\r\n",
    "sub foo 1\nPub foo 2\nhi\r\n",
    "SUB foo 1\r\nuNsUb 1\r\n",
]

GARBAGE: Scripts = [
    "X",
    "MSG foo 1 2\r\nhi\r\n",
    "M",
    "m",
    "R",
    "A",
    "L",
    "RS+ foo\r\n",
    "HX",
    "PX",
    "SX",
    "SUBX",
    "SUB\r\n",
    "PUB\r\n",
    "UNSUB\r\n",
    "CONNECT\r\n",
    "CONNEXT",
    "UNSUX",
    "INFX",
    "+X",
    "-X",
    "-ERX",
    "-ERRX",
    "PINX",
    "PONX",
    "PUBX foo",
    "HPUX",
    "HPUBX",
    "\r\n",
    "\n",
    " PING\r\n",
    "\x00",
    "GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe",
    b"\x16\x03\x01\x02\x00\x01\x00",
    "SUB foo 1\r\n\r\n",
    half("P"),
    half("H"),
    half("CONN"),
    half("SUB foo 1"),
    half("PUB foo 5\r\nabc"),
    half("+O"),
]

SUBSCRIBING: Scripts = [
    "SUB foo\r\n",
    "SUB \r\n",
    "SUB  \t foo \t 1 \t\r\n",
    "SUB foo 1 2 3\r\n",
    "SUB a b c d e f g\r\n",
    "SUB foo\r 1\r\n",
    "SUB foo\r1\n",
    "SUB fo\ro 12\nPUB foo 0\r\n\r\n",
    "SUB \nfoo 1\r\n",
    "SUB foo q 1\r\nPUB foo 1\r\nx\r\n",
    "SUB foo q.* 1\r\nPUB foo 1\r\nx\r\n",
    "SUB foo _sys_ 1\r\n",
    "SUB foo q..x 1\r\nPUB foo 1\r\nx\r\n",
    "UNSUB \r\n",
    "UNSUB 1 2 3\r\n",
    "UNSUB nothere\r\n",
    LAX
    + "SUB foo 1\r\nSUB bar 1\r\nPUB foo 1\r\na\r\nPUB bar 1\r\nb\r\nUNSUB 1\r\nPUB foo 1\r\nc\r\n",
    LAX + "SUB foo 1\r\nSUB foo 2\r\nPUB foo 1\r\na\r\n",
    LAX + "SUB foo 1\r\nSUB foo.. 1\r\nSUB foo.. 2\r\nSUB ok 2\r\nPUB ok 0\r\n\r\n",
    LAX + "SUB foo abc-ABC_1/\r\nPUB foo 1\r\na\r\n",
]

PUBLISHING: Scripts = [
    "SUB foo 1\r\nPUB foo 2\r\nhi\r\n",
    "SUB foo 1\r\nPUB foo 002\r\nhi\r\n",
    "SUB foo 1\r\nPUB foo bar.x 2\r\nhi\r\n",
    "SUB foo 1\r\nPUB foo 0\r\n\r\n",
    "PUB foo 2\nhi\r\n",
    "SUB foo 1\r\nPUB foo 4\r\n\r\n\r\n\r\n",
    "PUB foo 2\r\nhi\n\n",
    "PUB foo 2\r\nhix\r\n",
    half("PUB foo 2\r\nhix"),
    half("PUB foo 2\r\nhi\rx"),
    "PUB foo 2\r\nhi\rx",
    "PUB foo -1\r\n",
    "PUB foo x\r\n",
    "PUB foo 1x\r\nq\r\n",
    "PUB foo +1\r\nq\r\n",
    "PUB foo 1.0\r\n",
    "PUB foo 9999999999\r\n",
    "PUB foo 99999999999999999999999\r\n",
    "PUB foo 999999999\r\n",
    "PUB foo 0000000001\r\nx\r\n",
    "PUB foo 000000001\r\nx\r\n",
    "PUB foo\r\n",
    "PUB foo a b 1\r\nx\r\n",
    "PUB \r\n",
    "PUB \nfoo 1\r\nx\r\n",
    "PUB foo\r 1\r\nx\r\n",
    "PUB foo 1 \r\nx\r\n",
    "PUB foo 1\t\r\nx\r\n",
    "PUB\tfoo\t1\r\nx\r\n",
    "PUB foo 0x1\r\n",
    "PUB foo 1048577\r\n",
    "PUB foo 1048576\r\n" + "x" * 1048576 + "\r\n",
    "PUB foo 2147483648\r\n",
    "PUB foo 4294967296\r\n",
]

HEADED: Scripts = [
    "HPUB foo 0 0\r\n\r\n",
    QUIET + "HPUB foo 0 0\r\n\r\n",
    FULL + "HPUB foo 0 0\r\n\r\n",
    FULL + f"SUB foo 1\r\nHPUB foo 12 14\r\n{HEADERS}hi\r\n",
    FULL + f"SUB foo 1\r\nHPUB foo re 12 14\r\n{HEADERS}hi\r\n",
    FULL + f"SUB foo 1\r\nHPUB foo 012 0014\r\n{HEADERS}hi\r\n",
    FULL + f"SUB foo 1\r\nHPUB foo 12 12\r\n{HEADERS}\r\n",
    FULL + "HPUB foo 14 12\r\n",
    FULL + "HPUB foo -1 12\r\n",
    FULL + "HPUB foo 1\r\n",
    FULL + "HPUB foo a b 1 2\r\nxx\r\n",
    FULL + "HPUB foo 1 x\r\n",
    FULL + "HPUB foo x 1\r\n",
    FULL + "SUB foo 1\r\nHPUB foo 0 2\r\nhi\r\n",
    FULL + "SUB foo 1\r\nHPUB foo 2 2\r\nhi\r\n",
    FULL + "HPUB foo 12 1048577\r\n",
    [
        say(QUIET + "SUB foo 1\r\n", "b"),
        say(FULL + f"HPUB foo 12 14\r\n{HEADERS}hi\r\nHPUB foo re 012 12\r\n{HEADERS}\r\n"),
        say(FULL + f"HPUB foo re 000 002\r\nhi\r\nHPUB foo re 12 15\r\n{HEADERS}abc\r\n"),
    ],
]

CONNECTS: Scripts = [
    "CONNECT {}\r\n",
    "CONNECT{}\r\n",
    "CONNECT \t {}\n",
    "connect {}\r\n",
    "CONNECT null\r\n",
    "CONNECT []\r\n",
    "CONNECT 1\r\n",
    'CONNECT "x"\r\n',
    "CONNECT {\r\n",
    "CONNECT {} x\r\n",
    'CONNECT {"verbose":1}\r\n',
    'CONNECT {"verbose":"false"}\r\n',
    'CONNECT {"verbose":null}\r\n',
    'CONNECT {"VERBOSE":false,"Pedantic":false}\r\nPUB foo 0\r\n\r\n',
    'CONNECT {"foo":{"x":[1,2]}}\r\n',
    'CONNECT {"user":5}\r\n',
    'CONNECT {"protocol":2}\r\n',
    'CONNECT {"protocol":-1}\r\n',
    'CONNECT {"protocol":1.0}\r\n',
    'CONNECT {"protocol":1.5}\r\n',
    'CONNECT {"protocol":"1"}\r\n',
    'CONNECT {"protocol":1}\r\n',
    'CONNECT {"protocol":1e0}\r\n',
    'CONNECT {"protocol":99999999999999999999}\r\n',
    'CONNECT {"protocol":true}\r\n',
    'CONNECT {"no_responders":true}\r\n',
    'CONNECT {"no_responders":true,"headers":true}\r\n',
    'CONNECT {"account":"x"}\r\n',
    'CONNECT {"new_account":true}\r\n',
    'CONNECT {"name":NaN}\r\n',
    'CONNECT {"x":NaN}\r\n',
    'CONNECT {"x":-Infinity}\r\n',
    'CONNECT {"name":"\xff\\ud800"}\r\n',
    'CONNECT {"verbose":false,"verbose":true}\r\n',
    b'CONNECT {"user":"\xff"}\r\n',
    'CONNECT {"verbose":false}\r\nCONNECT {}\r\nSUB foo 1\r\n',
    'CONNECT {"verbose":false}\r\nSUB foo 1\r\nCONNECT {"pedantic":false}\r\nPUB foo 0\r\n\r\n',
    "SUB foo 1\r\nCONNECT {}\r\nPUB foo 0\r\n\r\n",
    FULL + FULL,
    FULL + 'CONNECT {"protocol":0}\r\nPING\r\n',
    'CONNECT {"proxy_sig":1}\r\n',
    'CONNECT {"remote_account":1}\r\n',
    'CONNECT {"import":1}\r\n',
    'CONNECT {"export":[]}\r\n',
    'CONNECT {"import":{"allow":["x"]}}\r\n',
    'CONNECT {"tls_required":true}\r\n',
    'CONNECT {"jwt":"x"}\r\n',
    'CONNECT {"nkey":"x"}\r\n',
    'CONNECT {"auth_token":"x"}\r\n',
    'CONNECT {"user":"a","pass":"b"}\r\n',
    "CONNECT \n{}\r\n",
    "CONNECT\n{}\n",
    'CONNECT {"name":"a\tb"}\r\n',
    b"CONNECT \xef\xbb\xbf{}\r\n",
    "CONNECT {'verbose':false}\r\n",
    'CONNECT {"x":' + "[" * 500 + "]" * 500 + "}\r\n",
]

LONG_LINES: Scripts = [
    'CONNECT {"name":"' + "x" * 4080 + '"}\r\n',
    'CONNECT {"name":"' + "x" * 4000 + '"}\r\n',
    "SUB " + "x" * 4093 + " 1\r\n",
    "SUB " + "x" * 4094 + " 1\r\n",
    "SUB " + "x" * 4095 + " 1\r\n",
    half("SUB " + "x" * 4096),
    half("SUB " + "x" * 4097),
    half("SUB " + "x" * 4096 + "\r"),
    "PUB " + "x" * 4093 + " 0\r\n\r\n",
    "PUB " + "x" * 4094 + " 0\r\n\r\n",
    "PUB " + "x" * 4095 + " 0\r\n\r\n",
    "x" * 5000,
    half("UNSUB " + "x" * 5000),
]

_PATTERNS = [
    "foo",
    "*",
    "foo.*",
    "foo.>",
    ">",
    "*x",
    "foo.>x",
    "foo.*x",
    "foo..bar",
    ".foo",
    "foo.",
    "..",
    ".",
    "foo.>.bar",
    ">.foo",
    "*.*",
    "f*o",
    "foo.**",
    "foo.>>",
    "$SYS.x",
    "foo\x01",
    "f\xc3\xa9",
    "\x7f",
    'f"o',
    "f\\o",
]
_TO_ALL = "".join(
    f"PUB {subject} 3\r\n{number}\r\n" for number, subject in enumerate(_PATTERNS, 100)
)
SUBJECTS: Scripts = [LAX + f"SUB {pattern} 1\r\n{_TO_ALL}" for pattern in _PATTERNS] + [
    f"PUB {pattern} 1\r\nx\r\n" for pattern in _PATTERNS
]

RESERVED: Scripts = [
    FULL + f"SUB > 1\r\nPUB {subject} 0\r\n\r\n"
    for subject in (
        "_GR_.",
        "_GR_.x",
        "_GR_",
        "$GR.",
        "$GR.x",
        "$NRG.",
        "$NRG.x",
        "$NRG",
        "_R_.x",
        "$JS.ACK.x",
    )
] + [
    FULL + f"SUB x 1\r\nPUB x {reply} 0\r\n\r\n"
    for reply in (
        "$JS.ACK",
        "$JS.ACK.",
        "$JS.ACK.x",
        "_R_.",
        "_R_.x",
        "_R_",
        "_GR_.",
        "_GR_.x",
        "$GR.",
        "$GR.x",
        "_GR_.a.b.c",
        "_INBOX.x",
        "*",
        ">",
        "a..b",
        "$NRG.x",
    )
]

NO_RESPONDERS: Scripts = [
    FULL + "SUB r.* 9\r\nPUB nobody r.1 2\r\nhi\r\n",
    FULL + "SUB r.* q 9\r\nPUB nobody r.1 2\r\nhi\r\n",
    FULL + "PUB nobody r.1 2\r\nhi\r\n",
    FULL + "SUB r.* 9\r\nPUB nobody 2\r\nhi\r\n",
    FULL + "SUB r.* 9\r\nUNSUB 9 1\r\n" + "PUB nobody r.1 2\r\nhi\r\n" * 2,
    FULL + "SUB foo 1\r\nUNSUB 1 1\r\nSUB r.> 2\r\n" + "PUB foo r.x 0\r\n\r\n" * 2,
    DEAF + "SUB foo 1\r\nSUB r.> 2\r\nPUB foo r.x 1\r\nx\r\n",
    QUIET + "SUB r.* 9\r\nPUB nobody r.1 2\r\nhi\r\n",
    [
        say(QUIET + "SUB foo 1\r\n", "b"),
        say(FULL + "SUB r 1\r\nPUB foo r 1\r\nx\r\n"),
        say("PUB r 1\r\ny\r\n", "b"),
    ],
]

_LIMITS = ["0", "1", "2", "-1", "x", "5", "999999999", "9999999999", "3 "]
_ABCD = [f"PUB foo 1\r\n{letter}\r\n" for letter in "abcd"]
AUTO_UNSUBSCRIBING: Scripts = [
    *(LAX + f"SUB foo 1\r\nUNSUB 1 {limit}\r\n" + "".join(_ABCD) for limit in _LIMITS),
    *(
        LAX + "SUB foo 1\r\n" + "".join(_ABCD[:2]) + f"UNSUB 1 {limit}\r\n" + "".join(_ABCD[2:])
        for limit in _LIMITS
    ),
    *(LAX + f"UNSUB 1 {limit}\r\nSUB foo 1\r\n{_ABCD[0]}" for limit in _LIMITS),
    LAX + f"SUB foo 1\r\nUNSUB 1 3\r\n{_ABCD[0]}UNSUB 1 2\r\n{_ABCD[1]}{_ABCD[2]}",
    LAX + f"SUB foo 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n{_ABCD[0]}{_ABCD[1]}",
    LAX + f"SUB foo 1\r\nUNSUB 1\r\nUNSUB 1\r\n{_ABCD[0]}",
    LAX + f"SUB foo 1\r\nUNSUB 1 2\r\n{_ABCD[0]}UNSUB 1\r\n{_ABCD[1]}",
    LAX + f"SUB foo q 1\r\nUNSUB 1 2\r\n{''.join(_ABCD)}SUB foo 1\r\n{_ABCD[3]}",
]

ECHO: Scripts = [
    [
        say(DEAF + "SUB foo 1\r\nSUB foo q 2\r\n", "b"),
        say(QUIET + "SUB foo 1\r\n"),
        say("PUB foo 1\r\na\r\n", "b"),
        say("PUB foo 1\r\nb\r\n"),
    ]
]

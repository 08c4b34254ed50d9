"""Configuration files that both servers must judge alike.

Each is a whole file. ACCEPTED ones must also have the same digest, so that the same values were
read from them; REJECTED ones must be rejected, and at the same place where the other server names
one and does not pick it at random.
"""

from __future__ import annotations

USER_NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
ACCOUNT_NKEY = "AAWTP2GQCZOKQGGPMYGVZMZ6WCHYGHZTVIBVBTQ4AXJZKTQZZUY2BWKM"

ACCEPTED: dict[str, str] = {
    "separators": 'port: 4222\nhost = "127.0.0.1"\nmax_payload 1mb\nping_max:3',
    "ends": "port: 4222; debug: true, trace: false\nlogtime: yes",
    "comments": "# one\nport: 4222 # two\n// three\ndebug: on // four\n",
    "json": '{"port": 4222, "authorization": {"users": [{"user": "a", "password": "b"}]}}',
    "json over lines": '{\n  "port": 4222,\n  "debug": true\n}\n',
    "keys in any case": 'PORT: 4222\nMax_Payload: 1kb\nSERVER_NAME: "x"',
    "quoted keys": "'port': 4222\n\"debug\": false",
    "sizes": "max_payload: 64k\nmax_pending: 64MB\nmax_control_line: 4Ki\nlog_size_limit: 1gib",
    "escapes": 'server_name: "a\\tb\\x41\\"\\\\"\nclient_advertise: a\\x2e:1',
    "a block string": "server_name: x\nauthorization { token: (\nmany\nlines\n)\n}\n",
    "listen as a port": "listen: 4222\nhttp: -1",
    "listen with a host": 'listen: 127.0.0.1:-1\nhttp: "localhost:8222"\nhttps: "[::1]:8443"',
    "variables": "TOKEN: secret\nauthorization { token: $TOKEN }\n",
    "variables of a block": (
        "authorization {\n  ADMIN = { publish: '>', subscribe: '>' }\n"
        "  users = [ {user: a, password: b, permissions: $ADMIN} ]\n}\n"
    ),
    "bcrypt": "authorization { user: a, password: $2a$11$W2zko751KUvVy59mUTWmpOdW }",
    "durations": 'ping_interval: "100ms"\nwrite_deadline: 2s\nlame_duck_duration: "1h30m"',
    "bounds": (
        "max_connections: 0\nmax_subscriptions: 10\nmax_subs: 5\nmax_sub_tokens: 12\n"
        "max_traced_msg_len: 10\nmax_closed_clients: 5\nno_header_support: true\n"
        "disable_sublist_cache: true\nno_fast_producer_stall: true\n"
    ),
    "process": (
        "pid_file: /tmp/x.pid\nports_file_dir: /tmp\nprof_port: 0\nlog_file: '/tmp/x.log'\n"
        "logfile_max_num: 3\nsyslog: false\nremote_syslog: 'udp://localhost:514'\n"
        "logtime_utc: true\ntrace_verbose: false\ntrace_headers: false\n"
    ),
    "about the server": (
        "server_tags: [ 'a', 'b:c' ]\nserver_metadata { a: 'b' }\nfeature_flags { x: true }\n"
        "connect_error_reports: 10\nreconnect_error_reports: 5\nclient_advertise: 'x:1'\n"
    ),
    "jetstream as a word": "jetstream: enabled",
    "jetstream as a boolean": "jetstream: true",
    "jetstream off": "jetstream: disabled",
    "jetstream alone": "jetstream {}\n",
    "jetstream": (
        "jetstream {\n enabled: true\n store_dir: '/tmp/js'\n max_file_store: 1Gb\n"
        " max_mem_store: '10M'\n domain: hub\n sync_interval: always\n strict: false\n"
        " key: 'k'\n prev_key: 'o'\n cipher: aes\n unique_tag: 'az:'\n"
        " max_buffered_size: 1mb\n max_buffered_msgs: 100\n request_queue_limit: 5\n"
        " max_concurrent_io: 16\n meta_compact: 5\n meta_compact_size: 1mb\n"
        " limits { max_ack_pending: 10, max_ha_assets: 5, max_request_batch: 7,"
        " duplicate_window: '1m', batch { max_msgs: 5, timeout: '1s' } }\n}\n"
    ),
    "jetstream with the interval": "jetstream { sync: '30s' }\n",
    "store_dir on top": "store_dir: '/tmp/x'\njetstream { max_file: 1G }",
    "token": "authorization { token: abc, timeout: 1.5 }",
    "one user": "authorization { username: a, pass: b, timeout: '500ms' }",
    "users": (
        "authorization {\n default_permissions { publish: 'x.>' }\n users = [\n"
        "  {user: a, password: b}\n"
        "  {user: c, password: d, permission: {publish: [a, 'b.*'], subscribe: {allow: 'x q',"
        " deny: ['y']}, allow_responses: true}}\n"
        "  {user: e, pass: f, permissions: {allow_responses: {max: 5, expires: '1m'}},"
        " allowed_connection_types: [standard, WEBSOCKET]}\n"
        f"  {{nkey: {USER_NKEY}}}\n ]\n}}\nno_auth_user: a\n"
    ),
    "empty lists": "authorization { users = [{user: a, password: b, permissions: {publish: []}}] }",
    "accounts": (
        "accounts {\n A {\n  users = [ {user: a, password: a} ]\n  jetstream: enabled\n"
        "  limits { max_conn: 5, max_subs: 10, max_payload: 1kb, max_leafs: 1 }\n"
        "  mappings = { foo: bar, 'a.*': 'b.$1', x: [ {destination: y, weight: 50%},"
        " {dest: z, weight: 20, cluster: C} ] }\n"
        "  exports = [ {stream: 'pub.>'}, {service: 'req', response_type: stream,"
        " response_threshold: '1s'}, {service: 'p', accounts: [B]} ]\n }\n"
        " B {\n  users = [ {user: b, password: b} ]\n"
        "  jetstream { max_mem: 1mb, max_file: 1gb, max_streams: 5, max_consumers: 10,"
        " max_ack_pending: 5, memory_max_stream_bytes: 1k, store_max_stream_bytes: 2k,"
        " max_stream_bytes: true }\n"
        "  imports = [ {stream: {account: A, subject: 'pub.x'}, prefix: from},"
        " {service: {account: A, subject: req}, to: 'a.req'},"
        " {service: {account: A, subject: p}} ]\n }\n SYS { users = [ {user: s, password: s} ] }\n"
        "}\nsystem_account: SYS\n"
    ),
    "accounts as names": "accounts: [A, B]",
    "mappings on top": "mappings = { foo: bar, 'orders.*': '{{partition(5,1)}}.{{wildcard(1)}}' }",
    "latency": (
        "accounts { A { exports [ {service: s, latency: {sampling: 50%, subject: 'lat'}},"
        " {service: t, latency: lat2} ] } }"
    ),
    "msg_trace": "accounts { A { msg_trace: {dest: 'tr', sampling: 20%} }, B { trace_dest: 'x' } }",
    "cluster": (
        "cluster {\n name: C\n listen: '127.0.0.1:-1'\n authorization {user: r, password: s,"
        " timeout: 1}\n routes = ['nats-route://127.0.0.1:6222', 'nats://r:s@localhost:6223']\n"
        " no_advertise: true\n connect_retries: 5\n pool_size: 4\n accounts: [A]\n"
        " compression: s2_fast\n ping_interval: '10s'\n permissions {import: 'a', export: 'b'}\n}\n"
    ),
    "websocket": (
        "websocket {\n port: -1\n no_tls: true\n compression: true\n advertise: 'x:1'\n"
        " same_origin: false\n allowed_origins: ['http://a.b']\n handshake_timeout: '1s'\n"
        " jwt_cookie: j\n user_cookie: u\n pass_cookie: p\n token_cookie: t\n"
        " headers { 'X-A': b }\n authorization {user: a, password: b, timeout: 2}\n}\n"
    ),
    "ws": "ws { listen: 'localhost:8080', no_tls: true }",
    "leafnodes": (
        "leafnodes {\n listen: '127.0.0.1:7422'\n authorization { users = [ {user: a, password: b,"
        " account: A} ] }\n remotes = [ {url: 'nats://x:7422', account: A, hub: true},"
        " {urls: ['nats://y:1', 'nats://z:2'], deny_imports: 'a.>'} ]\n reconnect: '2s'\n}\n"
    ),
    "leaf": "leaf { port: 7422, no_advertise: true, compression: off, min_version: '2.9.0' }",
    "gateway": (
        "gateway {\n name: G\n port: 7222\n gateways = [ {name: H, urls: ['nats://h:7222']} ]\n"
        " reject_unknown_cluster: true\n}\n"
    ),
    "mqtt": "mqtt { port: 1883, ack_wait: '30s', max_ack_pending: 100, no_auth_user: a }",
    "resolver": "resolver: MEMORY",
    "allow_non_tls": "allow_non_tls: true",
    "monitoring": "http_port: -1\nhttps_port: 0\nhttp_base_path: '/x'\n",
    "a number that is a word": "server_name: 1m30s\nclient_advertise: 10.0.0.1:4222",
    # A resolver does not look at keys that it does not know, so that any value may stand there.
    "dates and floats": (
        "resolver { type: MEM, x: [2016-05-04T18:53:41Z, 1.50, -0.25, 0.0000001, 1.0, 12345.678,"
        " 100000000000000000000000.5, -7 ], y: '<é&>', z: $x, block: (\n a\n)\n}\n"
    ),
}

REJECTED: dict[str, str] = {
    "nothing": "",
    "only a comment": "# nothing\n",
    "unknown on top": "port: 4222\nfoo: 1\n",
    "unknown indented": "\n\n   bar 2",
    "unknown in a block": "jetstream {\n  enabled: true\n  bogus: 1\n}",
    "unknown in authorization": "authorization {\n user: a\n wrong: b\n}",
    "unknown of a user": "authorization { users = [\n {user: a,\n  colour: red}\n] }",
    "unknown in tls": "tls {\n bogus: true\n}",
    "unknown in permissions": "authorization { users=[{user: a, permissions: {\n wrong: b\n}}] }",
    "unknown of an account": "accounts { A {\n  wrong: b\n} }",
    "unknown in account limits": "accounts { A { limits {\n  wrong: 1\n} } }",
    "unknown in cluster": "cluster {\n name: x\n wrong: 1\n}",
    "unknown in websocket": "websocket {\n wrong: 1\n}",
    "unknown in leafnodes": "leafnodes {\n wrong: 1\n}",
    "unknown in gateway": "gateway {\n wrong: 1\n}",
    "unknown in mqtt": "mqtt {\n wrong: 1\n}",
    "unknown in limits": "jetstream { limits {\n wrong: 1\n} }",
    "a string for a port": 'debug: true\nport: "x"\n',
    "a number for a boolean": "debug: 1",
    "a number for a name": "server_name: 1",
    "a word for a map": "authorization: x",
    "an unclosed map": "port: 4222\nauthorization {\n user: a\n",
    "an unclosed array": "server_tags: [ 'a'\n",
    "an unclosed string": 'server_name: "abc\n',
    "a key without a value": "port",
    "a value on the next line": "port =\n4222",
    "two values": "port: 1 2\n",
    "a missing variable": "port: $NOT_THERE_AT_ALL\n",
    "a missing include": "include './not-there.conf'\n",
    "a bad escape": 'server_name: "a\\q"\n',
    "bad hexadecimal": 'server_name: "\\xzz"\n',
    "a float without digits": "x: 1.\n",
    "a bad date": "x: 2016-13-04T18:53:41Z\n",
    "half a date": "x: 2016-1\n",
    "a bad address": "listen: 'abc'\n",
    "a bad port": "listen: 'abc:def'\n",
    "a duration as a number": "ping_interval: 5\n",
    "a bad duration": "ping_interval: 5x\n",
    "a duration without a unit": 'write_deadline: "5"\n',
    "a short lame duck": "lame_duck_duration: 5s\n",
    "a negative grace": "lame_duck_grace_period: '-1s'\n",
    "a large payload": "max_payload: 10gb\n",
    "too many tokens": "max_sub_tokens: 300\n",
    "no tokens": "max_sub_tokens: 0\n",
    "a name with spaces": "server_name: 'a b'\n",
    "a duplicate user": "authorization { users = [{user: a, pass: b}, {user: a, pass: c}] }",
    "a duplicate user over accounts": (
        "accounts { A { users = [{user: a, pass: b}] }, B { users = [{user: a, pass: c}] } }"
    ),
    "user and token": "authorization { user: a, password: b, token: c }",
    "user and users": "authorization {\n user: a, password: b\n users = [{user: c, password: d}] }",
    "token and users": "authorization { token: a, users = [{user: c, password: d}] }",
    "token and accounts": "authorization { token: a }\naccounts { A { users=[{user: c}] } }",
    "nobody": "authorization { users = [\n {password: b}\n] }",
    "a bad nkey": "authorization { users = [\n {nkey: UABC}\n] }",
    "an nkey with a password": f"authorization {{ users = [ {{nkey: {USER_NKEY}, pass: x}} ] }}",
    "users as a map": "authorization { users { user: a } }",
    "a bad subject": "authorization { users = [{user: a, permissions: {publish: 'a..b'}}] }",
    "a bad subject in a list": "authorization { users=[{user: a, permissions: {pub: [a, 'b.']}}] }",
    "a queue to publish to": "authorization { users=[{user: a, permissions: {publish: 'a q'}}] }",
    "three words": "authorization { users=[{user: a, permissions: {subscribe: 'a b c'}}] }",
    "a number as subject": "authorization { users=[{user: a, permissions: {publish: [1, 2 ]}}] }",
    "neither allow nor deny": (
        "authorization { users=[{user: a, permissions: {publish: {\n foo: 'x'\n}}}] }"
    ),
    "bad responses": "authorization { users=[{user: a, permissions: {allow_responses: 5}}] }",
    "bad expiry": (
        "authorization { users=[{user: a, permissions: {allow_responses: {expires: 5}}}] }"
    ),
    "a bad connection type": (
        "authorization { users=[{user: a, password: b, allowed_connection_types: ['x']}] }"
    ),
    "a bad timeout": "authorization { timeout: '5x' }",
    "a timeout of minutes": "authorization { user: a, password: b, timeout: 2m }",
    "jetstream as another word": "jetstream: maybe",
    "jetstream as a number": "jetstream: 5",
    "a bad size": "jetstream { max_file: '5x' }",
    "a bad cipher": "jetstream { cipher: rot13 }",
    "two store_dirs": "store_dir: a\njetstream { store_dir: b }",
    "too little io": "jetstream { max_concurrent_io: 1 }",
    "an account that is $G": "accounts { $G { users: [] } }",
    "an account that is no map": "accounts { A: 5 }",
    "an account's bad jetstream": "accounts { A { jetstream: often } }",
    "an account's bad limit": "accounts { A { jetstream { max_mem: many } } }",
    "an account's bad nkey": "accounts { A { nkey: ABC } }",
    "duplicate account names": "accounts: [A, A]",
    "a bad mapping source": "mappings { 'a..b': c }",
    "a bad mapping": "mappings { 'a.*': 'b.*' }",
    "a mapping out of range": "mappings { 'a.*': 'b.$2' }",
    "an unknown mapping function": "mappings { 'a.*': 'b.{{bogus(1)}}' }",
    "a mapping with too few arguments": "mappings { 'a.*': 'b.{{split(1)}}' }",
    "a mapping without a weight": "mappings { a: [ {destination: b} ] }",
    "a mapping of too much": (
        "mappings { a: [ {destination: b, weight: 60%}, {destination: c, weight: 60} ] }"
    ),
    "a mapping to the same": (
        "mappings { a: [ {destination: b, weight: 20%}, {destination: b, weight: 20} ] }"
    ),
    "a mapping's bad weight": "mappings { a: [ {destination: b, weight: 120} ] }",
    "a mapping's unknown field": "mappings { a: [ {destination: b, weight: 20, foo: 1} ] }",
    "exports as a map": "accounts { A { exports { stream: a } } }",
    "an export of both": "accounts { A { exports [ {stream: a, service: b} ] } }",
    "a stream that responds": "accounts { A { exports [ {stream: a, response: single} ] } }",
    "an unknown response": "accounts { A { exports [ {service: a, response: many} ] } }",
    "an export to nobody": "accounts { A { exports [ {stream: a, accounts: [Z]} ] } }",
    "an import from nobody": "accounts { A { imports [ {stream: {account: Z, subject: a}} ] } }",
    "an import without a subject": "accounts { A { imports [ {stream: {account: Z}} ] } }",
    "an import without an export": (
        "accounts { A { imports [ {stream: {account: B, subject: a}} ] }, B { } }"
    ),
    "an import that is not allowed": (
        "accounts { A { imports [ {service: {account: B, subject: a}} ] },"
        " B { exports [ {service: a, accounts: [C]} ] }, C { } }"
    ),
    "a wild prefix": (
        "accounts { A { imports [ {stream: {account: B, subject: a}, prefix: '*'} ] },"
        " B { exports [ {stream: a} ] } }"
    ),
    "a duplicate import": (
        "accounts { A { imports [ {stream: {account: B, subject: a}},"
        " {stream: {account: B, subject: a}} ] }, B { exports [ {stream: a} ] } }"
    ),
    "a cycle of services": (
        "accounts {"
        " A { exports [ {service: a} ], imports [ {service: {account: B, subject: a}} ] },"
        " B { exports [ {service: a} ], imports [ {service: {account: A, subject: a}} ] } }"
    ),
    "a cycle of streams": (
        "accounts { A { exports [ {stream: a} ], imports [ {stream: {account: B, subject: a}} ] },"
        " B { exports [ {stream: a} ], imports [ {stream: {account: A, subject: a}} ] } }"
    ),
    "latency without a subject": (
        "accounts { A { exports [ {service: s, latency: {sampling: 5}} ] } }"
    ),
    "latency of too many": (
        "accounts { A { exports [ {service: s, latency: {sampling: 500, subject: a}} ] } }"
    ),
    "a bad trace destination": "accounts { A { msg_trace: 'a.*' } }",
    "sampling without a destination": "accounts { A { msg_trace: {sampling: 5} } }",
    "cluster users": "cluster { authorization { users = [{user: a, password: b}] } }",
    "a cluster token": "cluster { authorization { token: a } }",
    "cluster responses": "cluster { permissions { allow_responses: true } }",
    "a cluster name with spaces": "cluster { name: 'a b' }",
    "a duplicate route": "cluster { routes = ['nats://a:1', 'nats://a:1'] }",
    "a slow route ping": "cluster { ping_interval: '1m' }",
    "a bad write_timeout": "write_timeout: never",
    "bad compression": "cluster { compression: 5 }",
    "a missing certificate": "tls { cert_file: './none.pem', key_file: './none.key' }",
    "a certificate without a key": "tls { cert_file: './none.pem' }",
    "a missing authority": "tls { ca_file: './none.pem' }",
    "an unknown cipher": "tls { cipher_suites: [ 'NONE' ] }",
    "no ciphers": "tls { cipher_suites: [] }",
    "a broken cipher": "tls { cipher_suites: [ 'TLS_RSA_WITH_RC4_128_SHA' ] }",
    "an unknown curve": "tls { curve_preferences: [ 'NONE' ] }",
    "an old version": "tls { min_version: '1.1' }",
    "a bad pin": "tls { pinned_certs: [ 'abc' ] }",
    "a bad handshake_first": "tls { handshake_first: sometimes }",
    "known urls of clients": "tls { verify_cert_and_check_known_urls: true }",
    "tls as a word": "tls: true",
    "a bad system account": "system_account: 5",
    "a bad trusted key": "trusted_keys: 'OABC'",
    "a missing operator": "operator: './none.jwt'",
    "a bad operator": "operator: 'eyJabc'",
    "a bad resolver": "resolver: somewhere",
    "a bad preload": "resolver_preload { A: 'eyJabc' }",
    "tags of numbers": "server_tags: [ 1 ]\n",
    "metadata of numbers": "server_metadata { a: 1 }",
    "feature flags of words": "feature_flags { a: 'x' }",
    "leaf users and user": (
        "leafnodes { authorization { user: a, password: b, users = [{user: c, password: d}] } }"
    ),
    "an old leaf": "leafnodes { min_version: '2.7.0' }",
    "mqtt acks": "mqtt { max_ack_pending: 70000 }",
    "a bad header": "websocket { headers: [ 'a' ] }",
}

"""Every bound of Penstock, each with its reason.

A number that limits memory, time or bytes is declared here. Four kinds stand elsewhere, each with
its reason beside it: what a format or a protocol fixes, beside the code that reads it; the checks
that the reference server makes of a configuration, beside the field; the ends of a type, as
2**63 - 1; constants of compiled modules, which the C compiler must know.
`tests/tidy/test_bounds.py` finds any other.

Imports nothing.
"""

KIB = 1024
MIB = 1024 * KIB

# The format on disk

SUBJECT_BYTES_MAX = 65_535
"""A subject's length on disk. The wire's control line keeps it to 4 KiB by default; Go's record has
a 16-bit field, and what Go stored we must be able to import."""

HEADERS_BYTES_MAX = 1 * MIB
"""A header block's length on disk. JetStream refuses more than 64 KiB; the rest is head-room for
headers that the server adds itself."""

PAYLOAD_BYTES_MAX = 64 * MIB
"""A payload's length on disk: the largest `max_payload` that a server may be configured with. A
length field above it is damage, and is refused before anything is allocated."""

ENVELOPE_BYTES_MAX = 64
"""What an envelope may add to the bytes it wraps (fixed fields, two varints, the AEAD's tag)."""

RECORD_OVERHEAD_BYTES_MAX = 1 + 3 * 10 + 8 + 24
"""Flags, three longest varints, expiry, sequence, timestamp, checksum: what a record takes beside
its bytes."""

BLOCK_BYTES_DEFAULT = 8 * MIB
"""A block is sealed before it would pass this. Small enough that a rewrite takes milliseconds and a
restart scans little, large enough that a stream of 10 million messages has some hundred files."""

BLOCK_BYTES_MAX = 2**32 - 1
"""Offsets within a block are 32-bit in its index."""

SEQUENCE_MAX = 2**63 - 1
"""The highest sequence: what a signed column holds in Arrow, Spark and SQL. At a million messages a
second it is reached after 292,000 years."""

TOMBSTONE_RANGES_MAX = 4096
"""Ranges of removed sequences in one tombstone record; more go into further records."""

TERM_REASON_BYTES_MAX = 256
"""Bytes that are kept of the reason with which a client gives up a message."""

CONSUMER_STATE_BYTES_MAX = 512 * MIB
"""What a consumer remembers on disk: at some 12 bytes for a pending message, 40 million of them,
which is more than memory holds."""

STREAM_DOCUMENT_BYTES_MAX = 16 * MIB
"""A stream's configuration beside its messages, as a job reads it: its server writes no larger."""

RESYNC_HASH_BYTES_MAX = 4 * 1024 * MIB
"""What one walk over a block may hash while it looks for the next whole record after damage: half a
second. Only payloads made to look like records could ask for more; what lies behind is then
reported as damaged, and its bytes are kept."""

DIRECTORY_LOOKS_MAX = 8
"""How often a directory is listed again that has new blocks each time. Then it is read as it
was."""

# What Go's nats-server stored

GO_RECORD_BYTES_MAX = 32 * MIB
"""A record in a block of Go's nats-server; its own recovery calls anything longer corrupt."""

GO_BLOCK_BYTES_MAX = 64 * MIB
"""Plain bytes in a block of Go's nats-server: it starts a new one at 8 MiB, or after one record of
at most 32 MiB. A longer file, or one that unpacks to more, is damage and is not loaded."""

GO_RESYNC_READ_RATIO_MAX = 8
"""Bytes read in search of whole records in a damaged block of Go's, as a multiple of the block.
Real damage stays below 2; only bytes that were made to look like records come near it. Beyond it
the rest of the block is given up."""

GO_STREAM_FILES_MAX = 1_000_000
"""Files of one snapshot that Go's server made: a block is at least a few KiB, so a stream with more
of them has terabytes."""

S2_CHUNK_BYTES_MAX = 4 * MIB
"""Plain bytes in one chunk of an S2 stream: the format's own bound."""

SNAPPY_EXPANSION_MAX = 22
"""Plain bytes per compressed byte. Snappy's best element turns 3 bytes into 64; a block that
declares more cannot be whole, and is refused before its declared length is allocated."""

JSON_LINE_BYTES_MAX = 128 * MIB
"""A line of the old `messages.jsonl`: the largest payload in base64, and headers with every byte
escaped. A longer one is refused before it is gathered."""

# Stores

RESTING_SHARE = 8
"""A block with at least one part in this many of a full one is not gone on with after a stop or a
start: its index would be in memory from then on. A shorter one costs little, and restarts must not
leave crumbs."""

WRITE_CACHE_BYTES_MAX = 4 * MIB
"""What the active block keeps in memory of bytes already written, for readers at the tail."""

ROOM_BYTES_MAX = 256 * KIB
"""Zeros written behind the records of the block that is being written: enough for a thousand single
commits, and written in a fraction of a millisecond."""

PENDING_BYTES_MAX = 64 * MIB
"""Bytes appended and not yet handed to the disk. Beyond it a writer waits for the commit under way:
the disk is slower than the source, and memory must not pay for that."""

DISK_THREADS_MAX = 16
"""Threads that write and sync for all stores of a process. Syncs at the same time share the file
system's own commits; more of them at once bring nothing (measured with 64 files on ext4)."""

COMMIT_THREADS_MAX = 16
"""Threads for commits that take more than a write and a sync, as those that begin a block: they
wait for the disk, and many streams may begin at once."""

UPKEEP_THREADS_MAX = 2
"""Threads for the work on stores that no client waits for: it must not take all processors."""

REOPEN_THREADS_MAX = 2
"""Stores that are reopened at once after a failed write: others may fail with them."""

REOPEN_INTERVAL_S_MIN = 0.25
"""How soon a store is reopened again where that failed, and a full disk tried for room."""

REOPEN_INTERVAL_S_MAX = 30.0
"""The same where it goes on failing: a broken disk is not to be kept busy."""

ROOM_TRIED_BYTES = 1 * MIB
"""Room that a full disk must have before messages are taken again: more than a commit needs, so
that publishers are not told yes and no by turns."""

INDEXES_SPARED_MAX = 8
"""Index files that are given up on a full disk for a removal: each has a page at the least, and a
removal takes about one."""

RECOVERY_THREADS_MAX = 8
"""Stores that are opened at once while a server starts: most of it is waiting for the disk."""

VOLATILE_PENDING_BYTES_MAX = 256 * KIB
"""Bytes appended to a memory store before they move to its blocks: enough that the move costs
nothing per message."""

UNSEALED_BLOCKS_MAX = 32
"""Sealed blocks that wait for their index file, each with its index in memory and its file open.
Beyond it a writer helps to write them: the background thread does not keep up."""

INDEX_CACHE_BYTES_MAX = 64 * MIB
"""Block indexes kept in memory for subject look-ups, least recently used first out."""

OPEN_BLOCKS_MAX = 192
"""Sealed blocks with open files (two descriptors each): below the usual limit of 1,024 files."""

CHECKPOINT_BLOCKS = 16
"""A checkpoint is written after this many sealed blocks, so that a crash never leaves more than
these many small indexes to merge at the next open."""

READ_CHUNK_BYTES = 1 * MIB
"""What is read at once of a file that is gone through from end to end."""

# Configuration and starting

CONFIG_FILE_BYTES_MAX = 16 * MIB
"""One configuration file. The longest real ones preload some thousand account JWTs of 2 KiB."""

CONFIG_DEPTH_MAX = 64
"""Maps and arrays within one another in a configuration file; the deepest meaningful one has 7."""

CONFIG_INCLUDE_DEPTH_MAX = 16
"""Files that include files: beyond it a file includes itself."""

CONFIG_VALUES_MAX = 1_000_000
"""Values of one configuration, included files counted: what includes of includes multiply to."""

JWT_FILE_BYTES_MAX = 1 * MIB
"""A file with one JWT: as long as a JWT may be, see `JWT_BYTES_MAX`."""

PID_FILE_BYTES_MAX = 64
"""What is read of a pid file: it holds one number."""

COMMAND_LINE_BYTES_MAX = 65_536
"""What is read of a process's command line to tell whether it is a server: the program and its
first arguments are at its beginning."""

SYSLOG_OPEN_S_MAX = 5.0
"""Seconds that the start of a server waits for a system log on another machine."""

LAME_DUCK_PAUSE_NS_MAX = 10**9
"""The pause between two clients that lame duck mode closes, however few there are: ten of them need
not take two minutes."""

# Who may

PASSWORD_BYTES_MAX = 65_536
"""A password or token that a client sends; it came in a control line, which is 4 KiB by default. A
longer one is refused before anything is computed from it."""

PASSWORD_THREADS_MAX = 2
"""Threads that compute bcrypt hashes of clients that connect. More would only take the cores that
messages need; connections wait in turn, each with one attempt at a time."""

BCRYPT_COST_MAX = 16
"""The highest cost of a bcrypt hash in a configuration: 2^16 rounds are some 4 s of work for each
attempt to connect. A higher one is refused at the start instead of hanging every client."""

JWT_BYTES_MAX = 1 * MIB
"""One JWT: the reference server's bound. Of a user it came in a control line, 4 KiB by default; of
an account, in a message or a file. A longer one is refused before anything is decoded."""

TOKEN_SECONDS_MAX = 100 * 366 * 86_400
"""How long a JWT may be good before it counts as good for ever: a century. No timer is asked to
wait longer, though the number in a token may be any."""

TEMPLATE_SUBJECTS_MAX = 4096
"""Subjects that the templates of a scoped signing key may become for one user, all lists apart:
each tag of a name is one, and tags multiply. The reference server's bound."""

RESOLVER_ACCOUNTS_MAX = 64
"""Accounts fetched for a client that connects: those its account imports from, theirs, and so on.
Each is a request to the resolver; accounts beyond it are left out, and so is what is imported of
them."""

PUBLISH_ANSWERS_MAX = 1024
"""Subjects per user for which it is remembered whether they may be published to, 64 bytes each; a
subject that is not remembered costs a comparison with each entry of the lists."""

RESPONSES_TRACKED_MAX = 65_536
"""Reply subjects per connection that may still be answered (`allow_responses`). A service has one
for each request it works on; beyond it the oldest is forgotten and can no longer be answered."""

# Turns of the event loop

TURN_LONG_NS = 20_000_000
"""Nanoseconds that a turn of the event loop may last, whatever is asked: so long, at the most, may
one client's work keep others waiting. Longer ones are counted."""

TURN_TOLD_NS = 100_000_000
"""Nanoseconds after which a turn is worth a line in the log: clients notice it."""

TURN_TOLD_APART_NS = 60 * 10**9
"""Nanoseconds between two such lines, so that a machine that is overloaded does not fill its disk
with them."""

WORK_TURN_NS = 4_000_000
"""Nanoseconds of a turn that go to long work of one stream, as removing very many messages. What is
left to do then waits for the next turn."""

# Connections

LISTEN_BACKLOG = 4096
"""Connections that wait in the kernel to be accepted, as far as it allows. When there are more, a
client of the burst tries again only after a second."""

ACCEPTS_PER_TURN = 64
"""Connections that a listener accepts before others get their turn."""

ACCEPT_PAUSE_S_MIN = 0.01
"""Seconds without accepting when descriptors or memory run out, twice as long each time: the
reference server's pause."""

ACCEPT_PAUSE_S_MAX = 1.0
"""The longest of these pauses, the reference server's too."""

PROXY_HEADER_S_MAX = 5.0
"""Seconds that the first bytes may take where a load balancer may stand before the client."""

FILTERED_READ_BYTES_MAX = 131_072
"""Bytes taken from a socket at a time where filters, such as TLS, stand before the protocol."""

TLS_READ_BYTES = 16_384
"""Plain bytes taken from a decrypted stream at a time: a record, more does not come at once."""

PRODUCER_STALL_S = 0.005
"""Seconds that a producer is not read whose receivers are far behind: the reference server's
time."""

RTT_GOOD_NS_MAX = 3600 * 10**9
"""How long a measured round trip is believed: after that even a busy client is pinged once. The
reference server's time."""

SUBSCRIPTIONS_REMOVED_PER_TURN = 2_000
"""Subscriptions of a closed connection that are taken out before others get their turn: some
milliseconds."""

FREED_BYTES_KEPT_MAX = 16 * MIB
"""Bytes of closed connections' buffers before the allocator is asked to give them back: that takes
a millisecond or two, which this many bytes are worth."""

CLOSED_SUBSCRIPTIONS_KEPT_MAX = 64
"""Subscriptions of a closed connection that monitoring still shows. With 10,000 closed connections
kept, each with all of its subscriptions, clients that come and go could fill the memory."""

WEBSOCKET_REQUEST_BYTES_MAX = 65_536
"""Request line and headers of a WebSocket upgrade. A browser sends less than 2 KiB and its cookies,
which it keeps to 4 KiB each."""

WEBSOCKET_UPGRADE_S_MAX = 10.0
"""Seconds from a WebSocket client's arrival to its upgrade, TLS included, where the configuration
has no `handshake_timeout`: a client that is silent for so long is none."""

WEBSOCKET_PACKED_PAYLOADS_MAX = 8
"""Compressed bytes of one WebSocket message, in largest payloads: the reference server's bound."""

WEBSOCKET_PACKED_BYTES_MAX = 64 * MIB
"""The same in bytes, for servers whose largest payload is large."""

WEBSOCKET_EXPANDED_BYTES_PER_TURN = 256 * KIB
"""Bytes that the compressed messages of one WebSocket client are expanded to before others get
their turn, about a millisecond: a client may send thousands that expand a thousandfold."""

WEBSOCKET_PIECE_COST_BYTES = 1 * KIB
"""What one frame of a WebSocket client costs of its turn beside its bytes: a few microseconds."""

WEBSOCKET_COMPRESS_ABOVE_BYTES = 64
"""Shorter WebSocket messages are sent as they are: compressing them costs more than it saves."""

WEBSOCKET_BROWSER_FRAME_BYTES_MAX = 4096
"""Bytes of a frame that goes to a browser, as in the reference server: browsers handle many small
frames better than a few large ones."""

LINK_LINE_BYTES_MAX = 1 * MIB
"""A line of another server over a link: its INFO, which grows with its cluster, is the longest."""

LINK_RETRY_S = 2.0
"""Seconds after which a broken link is made again."""

LINK_SILENCE_S = 20.0
"""Seconds for a server to log us in over a link, and to answer a PING on it later."""

# Routing

MAPPED_SUBJECTS_MAX = 4096
"""Subjects per account for which it is remembered which mapping applies, 64 bytes each; a subject
that is not remembered costs a comparison with each source."""

MAPPING_DESTINATIONS_MAX = 1024
"""Destinations of one subject mapping: with weights in whole percent, more cannot be meant."""

IMPORT_CYCLE_DEPTH_MAX = 1024
"""Accounts that a search for a cycle of imports may walk through: the reference server's bound."""

SERVICE_ANSWERS_MAX = 65_536
"""Answers that one import of a service waits for, some 1 KiB each. A requester that is gone is
waited for until the export's time is up; beyond this the one that waits longest is given up."""

TRACE_EVENTS_MAX = 10_000
"""Events of one trace of a message, some 200 bytes each: a message for a million subscribers would
otherwise be answered with one of 200 MB. All subscribers get the message; the trace has the
first."""

# Monitoring

MONITOR_REQUEST_BYTES_MAX = 16_384
"""Request line and headers of one monitoring request. A browser sends less than 2 KiB."""

MONITOR_CONNECTIONS_MAX = 256
"""Connections to the monitoring port at once: some dashboards, each with a few. One too many is
closed, so that a flood of them costs file descriptors that clients need."""

MONITOR_WAIT_S_MAX = 30.0
"""Seconds that a monitoring connection may take to send a request, or to read an answer."""

MONITOR_TURN_NS = 4_000_000
"""Nanoseconds of a turn of the event loop that go to writing one monitoring page: one with very
many connections or streams is gone on with in the next turns."""

JSON_WORDS_AT_ONCE = 2_000
"""Words of a page, as a name or a number, that are written before it is seen whether the turn is
over: about a millisecond."""

STACKS_TASKS_MAX = 1000
"""Tasks of the event loop whose stacks /stacksz shows: monitoring requests have one each."""

PIPELINE_NAME_LENGTH_MAX = 64
"""Letters of a pipeline's or a flow's name: it is a part of subjects, of labels and of paths."""

PIPELINE_REPORT_BYTES_MAX = 4 * KIB
"""One report of a flow of a pipeline: some 200 bytes, and an error's first line."""

PIPELINE_ERROR_LETTERS_MAX = PIPELINE_REPORT_BYTES_MAX // 16
"""Letters of an error that a flow reports: each takes up to six bytes in JSON, twice that as a
pair."""

PIPELINE_FLOWS_PER_ACCOUNT_MAX = 64
"""Flows of one account that are shown. Each is a series of every metric of pipelines, and any
client that may publish in the account names them. When full: new ones are ignored and counted."""

PIPELINE_FLOWS_PER_SERVER_MAX = 1024
"""The same of all accounts together: 4 MiB, with reports of the largest size."""

PIPELINE_SILENCE_S_MAX = 300
"""Seconds after which a flow without reports is forgotten; a running one reports every few seconds,
and one that failed or was killed stays visible for a while."""

# JetStream's API

API_REQUEST_BYTES_MAX = 8 * MIB
"""A request to the JetStream API. The largest that means something is a stream with very many
subjects; reading it holds up all clients for some tenths of a second. It is what messages are
advised to stay below, wherever `max_payload` is. Beyond it: bad request."""

JSON_DEPTH_MAX = 10_000
"""Arrays and objects within each other in a request's JSON. The reference server's own bound, so
that what one refuses the other refuses; a level costs a byte and no stack."""

JSON_VALUES_MAX = 100_000
"""Values of one array or object in a request's JSON, where they are neither texts nor numbers. Each
of those is read by itself, so that many of them would hold up all clients. Beyond it: refused as
invalid JSON."""

STREAM_NAMES_MAX = 1024
"""Names in one answer, as the reference server has it; clients ask for the rest with an offset."""

STREAM_LIST_MAX = 256
"""Streams in one answer, as the reference server has it."""

CONSUMER_NAMES_MAX = 1024
"""Names of consumers in one answer, for the same reason."""

CONSUMER_LIST_MAX = 256
"""Consumers in one answer, for the same reason."""

STREAM_INFO_SUBJECTS_MAX = 100_000
"""Subjects in one answer, as the reference server has it."""

API_SUBJECTS_KEPT = 1_024
"""Subjects of requests for which it is remembered what they ask for: the same few come again and
again. At most the longest control line each, 4 MiB."""

API_TURN_NS = 4_000_000
"""Nanoseconds of a turn of the event loop that go to requests of all clients together. What is left
to do then waits for the next turn, so that a client that asks for nothing waits a few milliseconds
at the most, whatever is asked by others."""

SUBJECTS_LISTED_PER_TURN = 8_192
"""Subjects that are looked at, or compared with one another, before it is seen whether the turn is
over: a millisecond where they are scattered over much memory."""

STREAMS_LISTED_PER_TURN = 32
"""Streams or consumers that are shown before it is seen whether the turn is over."""

NAMES_LISTED_PER_TURN = 1_024
"""The same for names that are compared with a pattern."""

DELETED_LISTED_PER_TURN = 8_192
"""The same for sequences without a message."""

SHOWN_CONFIGS_BYTES_MAX = 4 * MIB
"""JSON of configurations that is kept for the next answer: that of some thousand streams. There are
two for streams and two for consumers, for lists and for other answers. When full: emptied."""

DIRECT_SUBJECTS_MAX = 1024
"""Subjects of one direct get of the last messages of many, as the reference server has it."""

SNAPSHOT_CHUNK_BYTES_MAX = 256 * KIB
"""One piece of a snapshot: large enough that it costs nothing, small enough to be sent whole."""

STREAM_NAME_BYTES_MAX = 1024
"""A stream's name in a snapshot; JetStream itself stops at 255."""

ARCHIVE_NAME_BYTES_MAX = 1 * MIB
"""The name of an entry of a stream's archive: the reference server's bound."""

ARCHIVE_ENTRY_BYTES_MAX = 128 * MIB
"""An entry of a stream's archive: a message, or the state of a consumer with very many pending
messages. It is kept in memory until it is whole."""

SNAPSHOT_IDLE_S_MAX = 5.0
"""How long a client may pause while a snapshot is sent or restored: the reference server's bound.
Then it is given up."""

SNAPSHOT_INTEREST_S_MAX = 2.0
"""How long a snapshot waits for a subscription to its subject: the reference server's bound."""

SNAPSHOT_PIECE_BYTES = 1 * MIB
"""Plain bytes of a snapshot that are packed at once."""

RESTORE_MEMORY_BYTES_MAX = 256 * MIB
"""What all restores of a server hold in memory: pieces that wait, entries that are not whole yet,
and consumers. Room for two of the largest entries. A restore that would need more is refused."""

RESTORE_UNSYNCED_BYTES_MAX = 16 * MIB
"""Plain bytes that a restore stores before it waits for the disk: a small piece may expand to very
many, which would wait in memory otherwise."""

RESTORE_QUEUE_BYTES_MAX = 64 * MIB
"""Pieces of a snapshot that were sent ahead of their acknowledgements. Beyond it the restore is
given up: a client that keeps to the rules has a few of them under way."""

# Streams

STREAM_NAME_LENGTH_MAX = 255
"""Bytes of a stream's name: it is also the name of a folder."""

DESCRIPTION_BYTES_MAX = 4 * KIB
"""A description of a stream or consumer; it is kept in memory and sent with every info."""

METADATA_BYTES_MAX = 128 * KIB
"""Keys and values of a stream's or consumer's metadata together, for the same reason."""

REPLICAS_MAX = 5
"""Copies of a stream: more cost more than they save, for a group waits for most of them."""

SUBJECT_PAIRS_MAX = 4_000_000
"""Subjects of one request compared with others, in pairs: about a second's work. Of a stream's own
subjects only those that begin alike are compared; two thousand patterns under one token come to
this."""

STREAM_SUBJECTS_MAX = 20_000
"""Subjects of a stream. The reference server compares each with all others, and is not to be
reached for minutes long before this. When full: refused, as too many to compare."""

STREAM_SOURCES_MAX = 10_000
"""Sources of a stream: each is a reader of its own. When full: the stream is refused."""

STORAGE_GRANT_BYTES_MAX = 16 * MIB
"""What a stream may store before it asks again what its account and the server have left: by so
much, times the number of streams, a limit can be passed at the most."""

TIMER_S_MAX = 86_400.0
"""The longest that a timer of a stream or consumer is set to, one day: the wall clock may be set
meanwhile, and what is due is looked at again."""

REMOVED_AT_ONCE = 2048
"""Messages that are removed, or looked at for it, before it is seen whether the turn is over: a
fraction of a millisecond."""

MARKERS_AT_ONCE = 64
"""The same for expired messages in whose place delete markers are stored, one by one."""

REMOVED_BEHIND_MAX = 16
"""Messages that give way to a new one while a limit that was lowered is still being applied: the
stream gets shorter with each, and no publish waits for all that is left."""

SCHEDULE_YEARS_MAX = 5
"""Years that are searched for the next time of a schedule. A date that does not come in them, as 30
February, never does."""

# Publishing

MESSAGE_HEADERS_BYTES_MAX = 65_535
"""The headers of a message that is published to a stream: the reference server's bound."""

MESSAGE_IDS_READ_AT_ONCE = 2_000
"""Stored messages that are read for their ids before others get their turn: about a millisecond."""

MESSAGE_IDS_PRUNE_S_MIN = 0.05
"""Seconds between two looks through a stream's message ids for old ones."""

HELD_MESSAGES_BYTES_MAX = 8 * MIB
"""Published messages that wait until the ids from before a restart are known. When there are more,
the ids are read at once, and all clients wait for that."""

BATCH_MESSAGES_MAX = 1000
"""Messages of an atomic batch: the reference server's bound. They wait in memory until all are
there."""

BATCHES_PER_STREAM_MAX = 50
"""Atomic batches of one stream that are not committed yet: the reference server's bound."""

BATCHES_PER_SERVER_MAX = 1000
"""The same of all streams together."""

BATCH_BYTES_MAX = 256 * MIB
"""What atomic batches that are not committed may hold in memory, all streams together. With the
bounds above alone, a few clients could ask for terabytes."""

BATCH_IDLE_NS_MAX = 10 * 1_000_000_000
"""How long a batch may wait for its next message before it is abandoned: the reference server's
bound."""

BATCH_ID_BYTES_MAX = 64
"""A batch's id: the reference server's bound."""

FAST_BATCHES_PER_STREAM_MAX = 1000
"""Fast batches of one stream at once: the reference's bound. One costs some hundred bytes."""

FAST_BATCHES_PER_SERVER_MAX = 50_000
"""The same of all streams together."""

FAST_FLOW_MAX = 500
"""Messages between two answers of a stream's fast batches at the most, of all of them together."""

FAST_FLOW_ASKED_MAX = 65_535
"""Messages between two answers that a client may ask for in a fast batch: 16 bits, as in the
reference server."""

# Mirrors and sources

FEED_MESSAGES_MAX = 512
"""Messages that a mirror or a source takes from its origin in one go: a few milliseconds, and then
others get a turn."""

COPIED_MESSAGES_MAX = 8192
"""The same for messages that are copied from store to store by compiled code."""

FEED_BYTES_MAX = 4 * MIB
"""Bytes of them: as much as comes in before the next message is not begun."""

FEED_RETRY_S = 2.0
"""Seconds after which an origin is tried again that could not be read, or whose message the stream
had no room for: the reference server's own pause."""

SOURCE_POSITIONS_INTERVAL_S = 10.0
"""Seconds after which it is written down how far a stream has come in its sources: what was stored
since is what a restart has to search for marks."""

FORMER_SOURCES_MAX = 1024
"""Sources that were taken out of a stream and are remembered, should they come back."""

SOURCE_POSITIONS_BYTES_MAX = 16 * MIB
"""Of the document in which that stands: as many sources as a configuration may have."""

REMOTE_ORIGIN_SILENCE_S = 10.0
"""Seconds without a word from an origin elsewhere, which has a heartbeat of one, until it is asked
anew: the reference server's own bound."""

# Consumers

DELIVERY_TURN_MESSAGES = 2_000
"""Messages that one consumer delivers before others get their turn: about two milliseconds."""

CONSUMER_WAIT_NS_MAX = 2**61
"""The longest wait for an acknowledgement that differs from none, 73 years. Clients may say more;
the end of a wait is computed in 64 bits, and must not wrap round to long ago."""

CONSUMER_TIME_NS_MAX = 2**62
"""The last moment to which a delivery is put off, in the year 2116, for the same reason."""

CONSUMER_STATE_INTERVAL_S = 0.1
"""How long the progress of consumers may be behind on disk, where writing it costs next to nothing.
What was delivered or acknowledged within it and was not confirmed is delivered again after a
crash."""

CONSUMER_STATE_INTERVAL_S_MAX = 0.5
"""How long it may be behind otherwise, or four times what a write took, if that is longer."""

CONSUMER_STATE_WRITES_APART = 200
"""How many times longer the pause between two of these writes is than a write. A commit that meets
one waits for it in the file system's journal: one message in two hundred may, not one in fifty."""

CONSUMER_JOURNAL_FILE_BYTES_MAX = 16 * MIB
"""A file of the journal of consumers: about thirty thousand changes, read in a tenth of a second at
start. When full: the next change begins another file."""

CONSUMER_FOLDERS_S = 1.0
"""How long no consumer was created or changed before their folders are written: nobody waits for
that, and it would slow down those who create many."""

CONSUMER_FOLDERS_S_MAX = 5.0
"""How long it is put off at most, for those who read the folders."""

CONSUMER_FOLDERS_PER_JOB = 32
"""Folders that are written before the states of consumers have their turn: a few milliseconds."""

CONSUMER_JOURNAL_REST_S = 30.0
"""How long nothing has changed before the folders are synced and the journal is cut. By then the
system has written most of them by itself."""

FLOW_WINDOW_BYTES_MAX = 32 * MIB
"""Bytes that a consumer with flow control sends ahead of what its client has confirmed: the
reference server's own window, of which a new consumer begins with a sixteenth."""

PENDING_LOOKED_FOR_AT_ONCE = 16
"""Pending messages of consumers that are looked for after each message that gave way to a limit of
its stream: the look-ups stay a small part of a publish."""

DEAD_LETTERS_SENT_MAX = 64
"""Dead letters of one consumer that are on their way to a stream at once: each is a message of up
to the largest size in memory."""

DEAD_LETTER_RETRY_S = 1.0
"""Seconds after which a dead letter that was not taken is sent again; twice as long each time that
none was taken meanwhile."""

DEAD_LETTER_RETRY_S_MAX = 60.0
"""The longest of these pauses."""

LETTER_SEARCH_MESSAGES = 1_000
"""Messages that are gone through at once when dead letters are looked for: some milliseconds."""

HELD_MESSAGES_MAX = 10_000
"""Messages of one consumer with ordered keys that wait for an earlier one of their key, while later
ones are delivered. Each is written with the consumer's progress; beyond it the consumer waits."""

KEYS_HELD_AT_ONCE = 100
"""Messages of a consumer with ordered keys that are passed by in one go, each waiting for an
earlier one of its key, before others get their turn."""

KEY_ENTRIES_STALE_MAX = 64
"""Entries of a consumer with ordered keys that are out of date and kept, beside as many as are not:
clearing them out then costs nothing per message."""

KEY_TOKEN_MAX = 64
"""The highest position of a token in a subject that can be a key."""

# Clients and the command line

CREDENTIALS_FILE_BYTES_MAX = 64 * KIB
"""A client's file with a JWT or a seed. A JWT with a hundred permissions is below 16 KiB."""

CLIENT_KEPT_MESSAGES_MAX = 1_000_000
"""Messages that a client keeps for subscriptions that nobody waits on right now; beyond it the
client refuses to go on: its user reads too slowly, and memory must not pay for that."""

CLIENT_REQUESTS_MAX = 100
"""Requests of a client that wait for their answers at a time, where there are many to make."""

COMMAND_VARIABLE_BYTES_MAX = 64 * KIB
"""A request's body in a command's environment: the kernel takes 128 KiB for one variable, name and
all. The whole body is on the command's stdin in any case."""

CLI_PULL_MESSAGES_MAX = 100
"""Messages that one pull of the command line asks for."""

CLI_HEARTBEATS_MISSED_MAX = 3
"""Heartbeats of a consumer that may be missing before the command line asks for it anew."""

SQL_HISTORY_LINES_MAX = 2_000
"""Lines that the SQL shell remembers from one run to the next."""

SQL_ROWS_SHOWN_MAX = 1_000
"""Rows of a result that are shown as a table where no limit is given: more is not read."""

# Spark

SPARK_RETRY_S_MAX = 5.0
"""The longest wait of a Spark task before it tries a server again: within it a server starts."""

SINK_BATCH_ROWS_MAX = BATCH_MESSAGES_MAX - 1
"""Rows that an exactly-once sink writes in one atomic batch: the last message is its fence."""

SINK_BATCH_BYTES_MAX = 4 * MIB
"""Bytes of them: as many batches as a stream may have open stay below what a server keeps."""

SINK_SUBJECTS_KNOWN_MAX = 100_000
"""Subjects of which a sink's task remembers that they are the stream's; when full, it starts
anew."""

SINK_PAUSE_S_MIN = 0.005
"""Seconds that a sink waits before it tries a batch again; twice as long each time."""

SINK_PAUSE_S_MAX = 1.0
"""The longest of these pauses."""

PUSHED_SUBJECTS_MAX = 256
"""Subjects of an IN list that narrow what Spark reads: each is looked for in every block, and named
to the server. A longer list is left to Spark, which looks at every row."""

STORE_DEPTH_MAX = 4
"""Folders from a server's store to a stream: jetstream, the account, streams, the stream."""

KEY_FILE_BYTES_MAX = 65_536
"""A file with the key of an encrypted store, as a Spark task reads it."""

META_PARTS_MAX = 32
"""Tasks that read what is known of many streams: each costs some time before its first row, and
streams are cheap."""

KV_WAITING_ROWS_MAX = 262_144
"""Messages of a bucket that a task groups by their subjects at a time, at least."""

ARCHIVE_MANIFEST_BYTES_MAX = 1024 * MIB
"""A whole manifest of an archive has some 250 bytes a file: this is four million files."""

ARCHIVE_GROUP_BYTES_MAX = 512 * MIB
"""Bytes of a group of rows in an archive, however uneven messages are: it is ended here, far below
what an Arrow column can hold."""

PIPELINE_FILE_BYTES_MAX = 256 * KIB
"""A pipeline's YAML file: one of a hundred flows is below 64 KiB, and reading is slow."""

PIPELINE_STARTS_MAX = 30
"""How often a query is started whose Python process is not there within ten seconds: a machine that
is busy for five minutes."""

SCHEMA_DEPTH_MAX = 32
"""Types within each other in a pipeline's schema: enough for any document, and no stack is
filled."""

SQL_SAMPLE_MESSAGES = 1_024
"""Messages of a stream that are looked at to tell which fields its payloads have."""

INFERRED_FIELDS_MAX = 256
"""Fields of one object in JSON payloads that become columns: payloads that use ids as names have as
many as there are ids. What is beyond is still within the payload's own column."""

INFERRED_DEPTH_MAX = 8
"""Objects within objects that become types of their own; what lies deeper is kept as it is."""

JOB_FINDINGS_MAX = 1_000
"""Findings that one part of a job reports; the others are counted. Past it a stream is not damaged
in places but as a whole, and the report stays something that can be read."""

TALLY_CELLS_MAX = 500_000
"""Counts by subject, hour and size that one task of `stats` gathers before it hands them on: some
50 MB with their subjects."""

HEADER_NAMES_MAX = 10_000
"""Different names of headers that `stats` reports. A stream with more has something in its names
that belongs into values, and the driver holds all of them. When more: refused."""

GROUPS_IN_DRIVER_MAX = 10_000
"""Groups that `stats` orders in the driver, which takes one run of Spark; more are left to
Spark."""

PACED_ROWS_MAX = 256
"""Messages that `replay` publishes together where they keep their times: those a moment
apart."""

MIGRATED_TREE_DEPTH_MAX = 8
"""How far below a folder `migrate` looks for streams: Go's server has them four deep."""

DEDUPE_DROPPED_MAX = 10_000_000
"""Duplicates that `dedupe` leaves out of one run: each task gets all of them, which is 80 MB where
none stand together. When more: refused, and a part of the stream can be taken at a time."""

# Benchmarks

BENCH_CLIENTS_MAX = 256
"""Publishers or subscribers of one bench. Each is a process of some 15 MB."""

BENCH_REQUESTS_MAX = 5_000_000
"""Requests of one run: each one's latency is kept, and sorting them takes 40 bytes each."""

BENCH_STORED_MAX = 20_000_000
"""Messages that a bench stores to read them: some minutes, and a few gigabytes of the disk."""

BENCH_LAPS_MAX = 1_000
"""Consumers that one run of a bench reads one after another: making them takes some seconds."""

BENCH_PIECE_BYTES = 512 * KIB
"""What a load process sends or receives between two reports: some hundred reports a second."""

BENCH_PIECES_AHEAD = 4
"""Pieces that publishers may be ahead of their slowest receiver: 2 MiB stay in the processor's
caches. From 32 MiB on, half of the usual `max_pending`, servers would slow publishers down."""

BENCH_PIECES_UNPACED = 16
"""Pieces that a publisher without receivers sends between two reports: 8 MiB. Three thousand
reports a second would keep a core from the server that is measured."""

BENCH_RING_BYTES_MAX = 256 * MIB
"""Frames that a publisher of several subjects keeps, one for each subject, and sends in turns."""

BENCH_WAIT_S = 60.0
"""Seconds that a load process waits for a server, or for a message, before it gives up."""

BENCH_LOG_LINES_KEPT = 100
"""Lines of the log of a server that a bench started: enough to tell why it did not start."""

BENCH_GROWTH_MAX = 20
"""A try of a bench is at most so many times as long as the one before: its rate may have been a
hiccup."""

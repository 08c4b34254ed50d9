from penstock.api.shown_configs import ShownConfigs
from penstock.stream.config.config import StreamConfig
from penstock.stream.replication.replication import Replication
from penstock.stream.stream import Stream
from penstock.text.json.write import Encoded

def state_json(stream: Stream, *, subjects: Encoded = ..., deleted: Encoded = ...) -> Encoded:
    """Return the state of a stream, with details if there are any; `StreamState` has the fields."""

def stream_json(
    stream: Stream,
    replication: Replication,
    now_ns: int,
    config: Encoded,
    state: Encoded,
    *,
    domain: str = "",
    leader: str = "",
) -> Encoded:
    """Return the info document of a stream, with what is shown of its configuration, and a state.

    `leader` is the server that leads it; empty if that is not shown.
    """

def streams_json(
    streams: list[Stream],
    replication: Replication,
    now_ns: int,
    configs: ShownConfigs[StreamConfig],
    domain: str,
) -> bytes:
    """Return the info documents of some streams, with commas between them."""

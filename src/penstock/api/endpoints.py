"""All that can be asked of JetStream: subject, type of the answer, handler."""

from __future__ import annotations

from typing import Final

from penstock.api import streams
from penstock.api.dispatch import Endpoint, Table

ENDPOINTS: Final = Table(
    [
        Endpoint("STREAM.CREATE.*", "stream_create_response", streams.create),
        Endpoint("STREAM.UPDATE.*", "stream_update_response", streams.update),
        Endpoint("STREAM.INFO.*", "stream_info_response", streams.info),
        Endpoint("STREAM.DELETE.*", "stream_delete_response", streams.delete),
        Endpoint("STREAM.NAMES", "stream_names_response", streams.names),
    ]
)

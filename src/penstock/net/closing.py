"""Why a connection was closed, in the reference server's words: they stand in connz and events."""

from __future__ import annotations

from enum import StrEnum


class ClosedReason(StrEnum):
    """Reasons of a closed connection."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_VIOLATION = "Authentication Failure"
    TLS_HANDSHAKE_ERROR = "TLS Handshake Failure"
    SLOW_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL = "Bad Client Protocol Version"
    WRONG_PORT = "Incorrect Port"
    MAX_ACCOUNT_CONNECTIONS = "Maximum Account Connections Exceeded"
    MAX_CONNECTIONS = "Maximum Connections Exceeded"
    MAX_PAYLOAD = "Maximum Message Payload Exceeded"
    MAX_CONTROL_LINE = "Maximum Control Line Exceeded"
    MAX_SUBSCRIPTIONS = "Maximum Subscriptions Exceeded"
    SERVER_SHUTDOWN = "Server Shutdown"
    AUTHENTICATION_EXPIRED = "Authentication Expired"
    CREDENTIALS_REVOKED = "Credentials Revoked"
    MISSING_ACCOUNT = "Missing Account"
    NO_RESPONDERS_NEEDS_HEADERS = "No Responders Requires Headers"
    KICKED = "Kicked"

"""The options as declared: their keys, their documentation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.config.options.declare import Block, fields_by_key, fields_of, options_of
from penstock.config.options.server import (
    AccountJetStreamOptions,
    AccountLimitsOptions,
    AccountOptions,
    AuthorizationOptions,
    ClusterOptions,
    ExportOptions,
    GatewayOptions,
    ImportOptions,
    JetStreamLimitsOptions,
    JetStreamOptions,
    LeafnodesOptions,
    LeafRemoteOptions,
    MqttOptions,
    PermissionsOptions,
    ServerOptions,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)

KEYS: dict[type[Block], str] = {
    ServerOptions: """
        listen port host net client_advertise server_name http https http_port monitor_port
        https_port http_base_path debug trace trace_verbose trace_headers logtime logtime_utc
        log_file logfile log_size_limit logfile_size_limit log_max_num logfile_max_num syslog
        remote_syslog pid_file pidfile ports_file_dir prof_port prof_block_rate max_control_line
        max_payload max_pending max_connections max_conn max_subscriptions max_subs
        max_sub_tokens max_subscription_tokens max_traced_msg_len max_closed_clients
        ping_interval ping_max write_deadline write_timeout lame_duck_duration
        lame_duck_grace_period no_auth_user default_sentinel system_account system
        no_system_account no_system no_sys_acc no_header_support disable_sublist_cache
        no_sublist_cache no_fast_producer_stall proxy_protocol proxies mappings maps accounts
        authorization tls allow_non_tls ocsp ocsp_cache operator operators roots root
        root_operators root_operator trusted trusted_keys resolver account_resolver
        accounts_resolver resolver_tls resolver_preload resolver_pinned_accounts
        connect_error_reports reconnect_error_reports server_tags server_metadata feature_flags
        default_js_domain store_dir storedir jetstream cluster gateway leafnodes leaf websocket
        ws mqtt""",
    AuthorizationOptions: """
        user username pass password token timeout users default_permission default_permissions
        permissions auth_callout auth_hook proxy_required""",
    UserOptions: """
        user username pass password nkey permission permissions authorization
        allowed_connection_types connection_types clients proxy_required""",
    PermissionsOptions: """
        publish pub import subscribe sub export allow_responses publish_allow_responses""",
    AccountOptions: """
        users nkey exports imports jetstream default_permissions mappings maps limits msg_trace
        trace_dest""",
    AccountLimitsOptions: """
        max_connections max_conn max_subscriptions max_subs max_payload max_pay max_leafnodes
        max_leafs""",
    AccountJetStreamOptions: """
        max_memory max_mem mem memory max_store max_file max_disk store disk max_streams streams
        max_consumers consumers max_bytes_required max_stream_bytes max_bytes
        mem_max_stream_bytes memory_max_stream_bytes disk_max_stream_bytes
        store_max_stream_bytes max_ack_pending cluster_traffic""",
    ExportOptions: """
        stream service accounts response response_type threshold response_threshold
        response_max_time response_time latency account_token_position allow_trace""",
    ImportOptions: "prefix to share allow_trace",
    JetStreamOptions: """
        enabled enable store_dir storedir store max_mem max_mem_store max_memory_store max_file
        max_file_store domain sync sync_interval strict key ek encryption_key prev_key prev_ek
        prev_encryption_key cipher extension_hint tpm unique_tag max_outstanding_catchup
        max_buffered_size max_buffered_msgs request_queue_limit info_queue_limit meta_compact
        meta_compact_size meta_compact_sync max_concurrent_io limits""",
    JetStreamLimitsOptions: """
        max_ack_pending max_ha_assets max_request_batch duplicate_window default_max_consumers
        batch""",
    ClusterOptions: """
        name listen host net port authorization routes tls advertise cluster_advertise
        no_advertise connect_retries connect_backoff permissions pool_size accounts compression
        ping_interval ping_max write_deadline write_timeout""",
    LeafnodesOptions: """
        listen host net port authorization remotes reconnect reconnect_delay reconnect_interval
        dial_timeout tls advertise leafnode_advertise no_advertise min_version minimum_version
        compression isolate_leafnode_interest isolate write_deadline write_timeout""",
    LeafRemoteOptions: """
        url urls account local credentials creds nkey seed tls hub deny_imports deny_import
        deny_exports deny_export compression ws_compression ws_compress websocket_compression
        websocket_compress ws_no_masking websocket_no_masking jetstream_cluster_migrate
        js_cluster_migrate no_randomize dont_randomize first_info_timeout dial_timeout disabled
        proxy isolate isolate_leafnode_interest request_isolation ignore_discovered_servers""",
    GatewayOptions: """
        name listen host net port authorization tls advertise connect_retries connect_backoff
        reject_unknown_cluster reject_unknown gateways write_deadline write_timeout""",
    WebsocketOptions: """
        listen host net port advertise no_tls tls same_origin allowed_origins allowed_origin
        allow_origins allow_origin origins origin handshake_timeout compression compress
        authorization authentication jwt_cookie user_cookie pass_cookie token_cookie
        no_auth_user headers ping_interval""",
    MqttOptions: """
        listen host net port tls authorization authentication no_auth_user ack_wait ackwait
        js_api_timeout api_timeout max_ack_pending max_pending max_inflight js_domain
        stream_replicas consumer_replicas consumer_memory_storage consumer_inactive_threshold
        consumer_auto_cleanup reject_qos2_publish downgrade_qos2_subscribe""",
    TlsOptions: """
        cert_file key_file ca_file verify verify_and_map verify_cert_and_check_known_urls
        insecure timeout cipher_suites allow_insecure_cipher_suites curve_preferences
        min_version pinned_certs connection_rate_limit handshake_first first immediate certs
        certificates cert_store cert_match_by cert_match cert_match_skip_invalid ca_certs_match
        ocsp_peer""",
}


BEYOND: dict[type[Block], set[str]] = {JetStreamOptions: {"links"}}
"""Keys that the real server does not have."""


@pytest.mark.parametrize("block", KEYS, ids=lambda block: block.__name__)
def test_a_block_takes_the_keys_of_the_real_server_and_no_others(block: type[Block]) -> None:
    expected = set(KEYS[block].split()) | BEYOND.get(block, set())
    assert {*fields_by_key(block), *block.shared_keys} == expected


@pytest.mark.parametrize("block", KEYS, ids=lambda block: block.__name__)
def test_every_option_is_declared_and_documented(block: type[Block]) -> None:
    documented = options_of(block)

    fields = dataclasses.fields(block)  # type: ignore[arg-type]  # every kind is a dataclass
    assert {field.name for field in fields} == set(documented)
    assert all(info.doc.endswith((".", "…")) for info in documented.values())


def test_options_cannot_be_changed() -> None:
    options = ServerOptions()

    with pytest.raises(dataclasses.FrozenInstanceError):
        options.port = 1  # type: ignore[misc]


def test_every_option_of_the_server_has_the_name_that_a_refused_reload_says() -> None:
    assert all(info.go_name for info in options_of(ServerOptions).values())
    assert all(info.go_name for info in options_of(JetStreamOptions).values())


def test_two_servers_do_not_share_what_could_be_changed() -> None:
    one, other = ServerOptions(), ServerOptions()

    shared = [field.name for field in fields_of(one) if isinstance(getattr(one, field.name), dict)]
    assert shared
    assert all(getattr(one, name) is not getattr(other, name) for name in shared)


def test_options_are_equal_when_all_of_them_are() -> None:
    assert ServerOptions(port=1) == ServerOptions(port=1)
    assert ServerOptions(port=1) != ServerOptions(port=2)
    assert ServerOptions() != JetStreamOptions()
    assert hash(JetStreamOptions(domain="a")) == hash(JetStreamOptions(domain="a"))


@pytest.mark.parametrize(
    ("values", "named", "told"),
    [
        ((), {"unheard_of": 1}, "has no option 'unheard_of'"),
        (("a",), {"user": "b"}, "user is given twice"),
        (("a",) * 100, {}, "options, not 100"),
    ],
    ids=["unknown", "twice", "too many"],
)
def test_options_are_made_only_of_what_they_have(
    values: tuple[Any, ...], named: dict[str, Any], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        AuthorizationOptions(*values, **named)


def test_a_block_shows_what_it_holds_and_nothing_secret() -> None:
    shown = repr(AuthorizationOptions(user="alice", password="s3cret"))

    assert "user='alice'" in shown
    assert "s3cret" not in shown

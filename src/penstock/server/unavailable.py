"""Options of parts that this server does not have.

What only adds something is left out, and the log says so. What decides who may connect is refused:
a server that knows of it and cannot check it must not let everybody in. Pure.
"""

from __future__ import annotations

from penstock.config.checks import all_users
from penstock.config.options import ServerOptions
from penstock.errors import UsageError


def check_available(options: ServerOptions) -> None:
    """Raise UsageError where it could not be told who may connect."""
    needs_proxy = any(user.proxy_required for user in all_users(options))
    if needs_proxy or options.authorization.proxy_required:
        raise UsageError("proxy_required is not available yet")


def without_effect(options: ServerOptions) -> list[str]:
    """Name what was asked for and will not be there."""
    leafnodes = options.leafnodes
    exports = [export for account in options.accounts.values() for export in account.exports]
    asked_for = {
        "Cluster": options.cluster is not None and options.cluster.port != 0,
        "Gateway": options.gateway is not None and options.gateway.port != 0,
        "Leafnodes": leafnodes is not None and bool(leafnodes.port or leafnodes.remotes),
        "MQTT": options.mqtt is not None and options.mqtt.port != 0,
        "Auth callout": options.authorization.auth_callout is not None,
        "Service latency": any(export.latency is not None for export in exports),
        "OCSP": options.ocsp is not None and options.ocsp.mode != "never",
        "Profiling": options.prof_port != 0,
    }
    return [name for name, is_asked_for in asked_for.items() if is_asked_for]

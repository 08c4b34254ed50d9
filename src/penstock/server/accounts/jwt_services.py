"""Requests of the system account about the JWTs of accounts: update, look up, list, delete.

    $SYS.REQ.CLAIMS.UPDATE                  store a JWT                    folders
    $SYS.REQ.ACCOUNT.<id>.CLAIMS.UPDATE     store that account's           all
    $SYS.ACCOUNT.<id>.CLAIMS.UPDATE         the same, as older tools ask   all
    $SYS.REQ.ACCOUNT.<id>.CLAIMS.LOOKUP     return it                      full folders
    $SYS.REQ.CLAIMS.PACK                    return all, one by one         full folders
    $SYS.REQ.CLAIMS.LIST                    list the names                 folders
    $SYS.REQ.CLAIMS.DELETE                  delete, if an operator asks    folders

Invariants: a JWT is stored only if it is well-formed and valid, and used only if a trusted operator
signed it. The JWT of an account in use takes effect at once. A request never raises into the
router.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.config.operators import OperatorClaims, operator_claims
from penstock.errors import FormatError, UsageError
from penstock.monitor.query import shown, without_empty
from penstock.protocol.jwt import decode_token
from penstock.protocol.nkeys import is_account_key
from penstock.routing.sublist import Subscription
from penstock.security.jwt.claim_checks import account_issues, blocking
from penstock.security.jwt.claims import AccountClaims, read_account
from penstock.server.accounts.jwt_accounts import JwtAccounts
from penstock.server.accounts.jwt_resolvers import FolderResolver
from penstock.server.system.services import SYSTEM_CID, InternalClient

if TYPE_CHECKING:
    from penstock.server.server import Server

OK: Final = 200
FAILED: Final = 500

Handler = Callable[[str, bytes | None, bytes], None]
"""Takes the subject of a request, where its answer goes, and its body."""


class ClaimsServices:
    """The services of one server; see the module."""

    def __init__(self, server: Server, claimed: JwtAccounts) -> None:
        self._server = server
        self._claimed = claimed
        self._sid = 1000
        operators = operator_claims(server.options)
        self._operator = operators[0] if operators else OperatorClaims()

    def start(self) -> None:
        """Subscribe to the requests, and log where accounts are stored."""
        for subject in ("$SYS.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE"):
            self._subscribe(subject, self._update_named)
        if self._folder is None:
            return
        self._subscribe("$SYS.REQ.CLAIMS.UPDATE", self._update_any)
        self._subscribe("$SYS.REQ.CLAIMS.LIST", self._list)
        self._subscribe("$SYS.REQ.CLAIMS.DELETE", self._delete)
        if not self._folder.is_cache:
            self._subscribe("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._look_up)
            self._subscribe("$SYS.REQ.CLAIMS.PACK", self._pack, queue=b"responder")
        which = "some" if self._folder.is_cache else "all"
        where = f"in exclusive directory {self._folder.folder.path}"
        self._server.log("INF", f"Managing {which} jwt {where}")

    def _subscribe(self, subject: str, handler: Handler, *, queue: bytes | None = None) -> None:
        def asked(name: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
            try:
                handler(shown(name), reply, body)
            except Exception as error:  # noqa: BLE001 - a request is an edge: it fails alone
                told = f"{type(error).__name__}: {error}"
                self._server.log("ERR", f"Error answering {shown(name)!r}: {told}")

        self._sid += 1
        client = InternalClient(asked, SYSTEM_CID)
        place = Subscription(client, subject.encode(), b"%d" % self._sid, queue)
        self._system.sublist.insert(place)

    @property
    def _folder(self) -> FolderResolver | None:
        resolver = self._claimed.resolver
        return resolver if isinstance(resolver, FolderResolver) else None

    @property
    def _system(self) -> Any:
        system = self._server.identities.accounts.system_account
        assert system is not None, "requests come from its users"
        return system

    # Bringing

    def _update_named(self, subject: str, reply: bytes | None, body: bytes) -> None:
        tokens = subject.split(".")
        self._update(tokens[3] if tokens[1] == "REQ" else tokens[2], reply, body)

    def _update_any(self, subject: str, reply: bytes | None, body: bytes) -> None:
        self._update("", reply, body)

    def _update(self, name: str, reply: bytes | None, body: bytes) -> None:
        """Store a JWT; `name` is the account that the subject names, or ""."""
        is_cache = self._folder is not None and self._folder.is_cache
        where = " cache" if is_cache else ""
        token = shown(body).strip()
        account = name if self._folder is None or is_cache else "n/a"
        if not token and self._folder is None:
            self._tell(reply, account, "jwt update error", "request body is empty")
            return
        try:
            claims = read_account(token)
            account = name or claims.subject
            self._check(claims, name)
            wrong = self._wrong(claims)
            if account not in self._claimed and (self._folder is None or is_cache):
                self._tell(reply, account, f"jwt update{where} skipped")
            elif wrong:
                update = f"update{where} " if is_cache else ""
                self._tell(reply, account, f"jwt {update}validation failed", wrong)
            else:
                self._keep(account, token)
                self._tell(reply, account, f"jwt updated{where}")
        except (UsageError, FormatError, OSError) as error:
            reason = error.reason if isinstance(error, FormatError) else str(error)
            self._tell(reply, account, f"jwt update{where} resulted in error", reason)

    def _check(self, claims: AccountClaims, name: str) -> None:
        if name and claims.subject != name:
            raise UsageError("subject does not match jwt content")
        operator = self._operator
        if operator.strict_signing_key_usage and claims.issuer == operator.subject:
            raise UsageError("operator requires issuer to be a signing key")

    def _wrong(self, claims: AccountClaims) -> str:
        if self._folder is None:
            return ""
        now_s = self._server.clock.now_ns() // 10**9
        issues = blocking(account_issues(claims, now_s), with_time=False)
        return f"validation errors: [{' '.join(issues)}]" if issues else ""

    def _keep(self, name: str, token: str) -> None:
        if self._folder is None:
            self._claimed.update(name, token)
            return
        if self._folder.folder.save(name, token) and name in self._claimed:
            try:
                self._claimed.update(name, token)
            except UsageError as error:
                # The JWT stays saved, as with the reference server, but is not used.
                told = f"resulted in error {error}"
                self._server.log("ERR", f'DirResolver - Update for account "{name}" {told}')

    # Asking

    def _look_up(self, subject: str, reply: bytes | None, body: bytes) -> None:
        if reply is not None and self._folder is not None:
            token = self._folder.folder.find(subject.split(".")[3])
            self._send(reply, token.encode())

    def _pack(self, subject: str, reply: bytes | None, body: bytes) -> None:
        if reply is None or self._folder is None:
            return
        if body != self._folder.folder.digest:
            for name, token in self._folder.folder.packed():
                self._send(reply, f"{name}|{token}".encode())
        # An empty message ends the list.
        self._send(reply, b"")

    def _list(self, subject: str, reply: bytes | None, body: bytes) -> None:
        if reply is not None and self._folder is not None:
            names = [name for name, _ in self._folder.folder.packed()]
            answer = {"data": names, "server": self._server.system.envelope.server()}
            self._server.system.events.send(self._system.sublist, reply, answer)

    # Deleting

    def _delete(self, subject: str, reply: bytes | None, body: bytes) -> None:
        resolver, asking = self._folder, ""
        if resolver is None:
            return
        try:
            token = decode_token(shown(body).strip())
            asking = str(token.claims.get("sub", ""))
            issuer, listed = token.claims.get("iss"), token.nats.get("accounts")
            names = self._named(asking, issuer, listed, may_delete=resolver.may_delete)
        except (UsageError, FormatError) as error:
            reason = error.reason if isinstance(error, FormatError) else str(error)
            self._tell(reply, "", f"delete accounts request by {asking} failed", reason)
            return
        failed = []
        for name in names:
            try:
                if resolver.folder.delete(name):
                    self._claimed.remove(name)
            except OSError as error:
                failed.append(str(error))
        done = f"deleted {len(names) - len(failed)} accounts"
        message = f"{done}, failed for {len(failed)}" if failed else done
        self._tell(reply, "", message, "\n".join(failed))

    def _named(
        self, subject: str, issuer: object, listed: object, *, may_delete: bool
    ) -> list[str]:
        """Return the accounts that an operator wants deleted; raise UsageError."""
        if not may_delete:
            raise UsageError("delete must be enabled in server config")
        if subject != issuer:
            raise UsageError("not self signed")
        if issuer not in self._operator.keys:
            raise UsageError("not trusted")
        if not isinstance(listed, list):
            raise UsageError("malformed request")
        for each in listed:
            if not isinstance(each, str) or not is_account_key(each):
                raise UsageError("malformed request")
            if each == self._system.name:
                raise UsageError("not allowed to delete system account")
        return listed

    # Answering

    def _tell(self, reply: bytes | None, account: str, message: str, reason: str = "") -> None:
        which = f" - {account}" if account else ""
        if reason:
            self._server.log("ERR", f"{message}{which} - {reason}")
        else:
            self._server.log("DBG", f"{message}{which}")
        if reply is None:
            return
        answer: dict[str, Any] = {"server": self._server.system.envelope.server()}
        if reason:
            error = {"account": account, "code": FAILED, "description": f"{message} - {reason}"}
            answer["error"] = without_empty(error, "account")
        else:
            data = {"account": account, "code": OK, "message": message}
            answer["data"] = without_empty(data, "account")
        self._server.system.events.send(self._system.sublist, reply, answer)

    def _send(self, reply: bytes, body: bytes) -> None:
        self._server.hub.publish(self._system.sublist, reply, None, b"", body)
        self._server.system.events.flush_soon()

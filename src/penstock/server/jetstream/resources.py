"""What JetStream may use of the machine, and the lines of the log that say so.

Without configured bounds, streams may take three quarters of the memory, and of the disk as it
would be without them: what is stored already is not free, but it is theirs. So a restart leaves the
bound where it was. The words of the log are the reference server's: harnesses wait for them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.config.options.jetstream import BatchLimitsOptions, JetStreamOptions
from penstock.errors import UsageError
from penstock.format.envelope import Cipher, StoreKey
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.interface import CommitStatistics
from penstock.store.vfs import OsFileSystem
from penstock.stream.config.config import API_LEVEL
from penstock.stream.publish.batches import BatchQuota
from penstock.stream.storage import StoragePolicy

FOLDER_NAME: Final = "jetstream"

STAT_BLOCK_BYTES: Final = 512
"""What POSIX counts the size of files on the disk in, whatever the file system's own blocks are."""

_BANNER: Final = (
    "    _ ___ _____ ___ _____ ___ ___   _   __  __",
    " _ | | __|_   _/ __|_   _| _ \\ __| /_\\ |  \\/  |",
    "| || | _|  | | \\__ \\ | | |   / _| / _ \\| |\\/| |",
    " \\__/|___| |_| |___/ |_| |_|_\\___/_/ \\_\\_|  |_|",
    "",
    "         https://docs.nats.io/jetstream",
    "",
)
_CIPHERS: Final = {
    "chacha": (Cipher.CHACHA20_POLY1305, "ChaCha20-Poly1305"),
    "aes": (Cipher.AES_256_GCM, "AES-GCM"),
}
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Resources(msgspec.Struct, frozen=True):
    """Where streams are, and how much they may take in all."""

    path: str
    is_temporary: bool
    memory_bytes_max: int
    storage_bytes_max: int


def make_resources(options: JetStreamOptions) -> Resources:
    """Find the bounds of the machine and create the folder; raise UsageError."""
    if options.tpm is not None and options.tpm.keys_file:
        # Going on would leave unencrypted what is meant to be encrypted.
        raise UsageError("TPM functionality is not supported on this platform")
    root = options.store_dir or os.path.join(_temporary_path(), "nats")
    path = os.path.join(root, FOLDER_NAME)
    _make_writable(path)
    memory, storage = options.max_memory, options.max_file
    return Resources(
        path,
        not options.store_dir,
        _memory_bytes() * 3 // 4 if memory < 0 else memory,
        (_free_bytes(path) + _used_bytes(path)) * 3 // 4 if storage < 0 else storage,
    )


def _temporary_path() -> str:
    # Few servers need it, and it takes its time to load.
    import tempfile

    return tempfile.gettempdir()


def _make_writable(path: str) -> None:
    files = OsFileSystem()
    try:
        files.make_dirs(path)
    except FileExistsError:
        raise UsageError("storage directory is not a directory") from None
    except OSError as error:
        reason = f"mkdir {error.filename}: {(error.strerror or 'failed').lower()}"
        raise UsageError(f"could not create storage directory - {reason}") from None
    probe = os.path.join(path, f"_test_{os.urandom(8).hex()}")
    try:
        files.open(probe, "create").close()
        files.unlink(probe)
    except OSError:
        raise UsageError("storage directory is not writable") from None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _used_bytes(path: str) -> int:
    """Return how much of the disk the files below a folder take."""
    used = 0
    folders = [path]
    while folders:
        # A folder that cannot be read is reported by whoever needs it.
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    used += entry.stat(follow_symlinks=False).st_blocks * STAT_BLOCK_BYTES
    return used


def storage_policy(
    options: JetStreamOptions, commits: CommitStatistics, done_jobs: DoneJobs
) -> StoragePolicy:
    """Return the policy that the options set for all stores."""
    return StoragePolicy(
        sync_interval_ns=0 if options.sync_always else options.sync_interval_ns or 0,
        cipher=_CIPHERS[options.cipher][0] if options.key else Cipher.NONE,
        key=StoreKey(options.key.encode()) if options.key else None,
        previous_key=StoreKey(options.previous_key.encode()) if options.previous_key else None,
        on_commit=commits.note,
        done_jobs=done_jobs,
    )


def batch_quota(options: BatchLimitsOptions) -> BatchQuota:
    """Return the bounds of batches; a bound that is not configured is the built-in one."""
    bounds = {
        "per_stream_max": options.max_inflight_per_stream,
        "total_max": options.max_inflight_total,
        "messages_max": options.max_msgs,
        "idle_ns_max": options.timeout_ns,
    }
    return BatchQuota(**{name: bound for name, bound in bounds.items() if bound > 0})


def announce(resources: Resources, options: JetStreamOptions, say: Callable[[str], None]) -> None:
    """Log what JetStream may use."""
    for line in _BANNER:
        say(line)
    say("---------------- JETSTREAM ----------------")
    if options.strict:
        say("  Strict:          true")
    say(f"  Max Memory:      {shown_bytes(resources.memory_bytes_max)}")
    say(f"  Max Storage:     {shown_bytes(resources.storage_bytes_max)}")
    say(f'  Store Directory: "{resources.path}"')
    if options.domain:
        say(f"  Domain:          {options.domain}")
    if options.key:
        say(f"  Encryption:      {_CIPHERS[options.cipher][1]}")
    say(f"  API Level:       {API_LEVEL}")
    say("-------------------------------------------")


def shown_bytes(count: int) -> str:
    """Return a number of bytes in human form."""
    if count < 1024:
        return f"{count} B"
    size, unit = float(count), 0
    while size >= 1024 and unit < 6:
        size, unit = size / 1024, unit + 1
    return f"{size:.2f} {' KMGTPE'[unit]}B"


def node_name(server_name: str) -> str:
    """Return the short name of a server in its log."""
    digest = hashlib.sha256(server_name.encode("utf-8", "surrogateescape")).digest()
    return "".join(_DIGITS[byte % 62] for byte in digest[:8])

"""Mounts that nobody else sees, and that are gone with the process, however it ends.

A test run that is killed would otherwise leave them behind, in folders that later runs want to
remove.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess

_CLONE_NEWNS = 0x00020000


@functools.cache
def keep_mounts_private() -> None:
    """Give this thread, and whatever it starts, mounts of its own; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)

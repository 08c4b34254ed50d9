"""The testing kit: a clock that tests move, disks that forget, planned faults, and servers.

`clock.FakeClock` moves when a test moves it. `filesystem.MemoryFileSystem` separates synced from
unsynced bytes, and can lose power. `faults.FaultyFileSystem` wraps any file system and fails the
call that a plan names. `servers` starts servers, ours and the real one.

It is part of the package, so that users can test with it; no production module imports it.
"""

"""The testing kit: time that is told, disks that forget, faults by plan, and servers.

`clock.FakeClock` is a clock that moves when told to. `filesystem.MemoryFileSystem` keeps apart what
was synced and what was not, and can lose power. `faults.FaultyFileSystem` wraps any file system and
fails the call that a plan names. `servers` starts servers, ours and the real one.

Shipped, so that users can test against it too; no production module imports it.
"""

"""System calls of compiled code, answered by a simulated disk."""

from typing import Final

from penstock.store.system_calls import SystemCalls

class SimulatedCalls(SystemCalls):
    """The table of system calls that asks the simulated file of a descriptor."""

    def __init__(self) -> None: ...

SIMULATED_CALLS: Final[SimulatedCalls]

def new_descriptor(opened: object) -> int:
    """Return a descriptor that leads to a simulated file or folder until that is gone."""
    ...

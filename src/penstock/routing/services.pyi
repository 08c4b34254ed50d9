from collections.abc import Callable
from typing import Any, final

from penstock.routing.hub import Hub
from penstock.routing.subject_transform import SubjectTransform
from penstock.routing.sublist import Receiver, Sublist

@final
class ServiceAnswers(Receiver):
    def __init__(
        self,
        owner: Any,
        hub: Hub,
        there: Sublist,
        here: Sublist,
        *,
        random_bytes: Callable[[int], bytes],
        is_single: bool,
        wait_ns: int,
        waiting_max: int,
    ) -> None: ...
    def expect(self, reply: bytes) -> bytes: ...
    def new_subject(self) -> bytes: ...
    def awaits(self, subject: bytes) -> bool: ...
    def sweep(self) -> int | None: ...
    def close(self) -> None: ...

@final
class ServiceDoor(Receiver):
    def __init__(
        self,
        owner: Any,
        hub: Hub,
        there: Sublist,
        answers: ServiceAnswers,
        rename: SubjectTransform | None,
        account: Any,
    ) -> None: ...

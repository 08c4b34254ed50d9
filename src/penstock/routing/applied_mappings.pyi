from collections.abc import Callable
from typing import final

from penstock.routing.subject_transform import SubjectTransform

@final
class Chance:
    def __init__(self, seed: int) -> None: ...
    def __call__(self, bound: int) -> int: ...

@final
class Choices:
    def __init__(
        self, source: SubjectTransform, choices: list[tuple[int, SubjectTransform]]
    ) -> None: ...

@final
class AppliedMappings:
    def __init__(self, mappings: list[Choices], random_below: Callable[[int], int]) -> None: ...
    def map(self, subject: bytes) -> bytes: ...
    @property
    def remembered(self) -> int: ...

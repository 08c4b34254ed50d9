"""Checks of JetStream's documents against the published schemas."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

FOLDER = Path(__file__).parent / "schemas"
_PREFIXES = {
    "io.nats.jetstream.api.v1.": FOLDER,
    "io.nats.jetstream.advisory.v1.": FOLDER / "advisory",
    "io.nats.jetstream.metric.v1.": FOLDER / "metric",
}
ERROR_PATH = FOLDER / "error.json"


def schema_path(kind: str) -> Path | None:
    """Return the path of the schema of a type; None if there is none."""
    for prefix, folder in _PREFIXES.items():
        if kind.startswith(prefix):
            path = folder / f"{kind.removeprefix(prefix)}.json"
            return path if path.exists() else None
    return None


@functools.cache
def _validator(path: Path) -> Draft7Validator:
    return Draft7Validator(json.loads(path.read_text()))


def faults_of(document: dict[str, Any]) -> list[str]:
    """Return the violations of a document's schema."""
    path = schema_path(document.get("type", ""))
    if path is None:
        return []
    if "error" in document:
        path, document = ERROR_PATH, {"type": document["type"], "error": document["error"]}
    return [
        f"{document['type']} {'.'.join(map(str, fault.absolute_path))}: {fault.message[:200]}"
        for fault in _validator(path).iter_errors(document)
    ]

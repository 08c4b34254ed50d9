"""Write src/penstock/error_codes.py from error_codes.json; run it after a change of the table.

    .venv/bin/python tools/gen_error_codes.py

`tests/tidy/test_generated.py` compares the output with the file in the tree.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "penstock"
TABLE = PACKAGE / "error_codes.json"
MODULE = PACKAGE / "error_codes.py"

_HEAD = '''"""The error codes and texts of JetStream's API; generated, do not edit.

The table is `error_codes.json` beside this file, `tools/gen_error_codes.py` writes the module. A
name is the reference server's, without its prefix and suffix. Placeholders in a text, like {seq},
are filled by `penstock.errors.ApiError`. Any module may import it.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import ErrorCode

'''

# A new word starts at a capital after a small letter or a digit, and at the last of several
# capitals: StreamNotFound, SnapshotDeliverSubjectInvalid, ConsumerFCRequiresPush, BadJSON.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def name_of(constant: str) -> str:
    """Return our name for one of the reference server's constants."""
    return _WORD.sub("_", re.sub(r"^JS|(Err)?F?$", "", constant)).upper()


def module_text(table: str) -> str:
    """Return the module's whole text."""
    entries = sorted(json.loads(table), key=lambda entry: name_of(entry["constant"]))
    return _HEAD + "".join(map(_declaration, entries))


def _declaration(entry: dict[str, object]) -> str:
    name = name_of(str(entry["constant"]))
    text = json.dumps(entry["description"])
    line = f"{name}: Final = ErrorCode({entry['code']}, {entry['error_code']}, {text})\n"
    if len(line) <= 101:
        return line
    inner = f"    {entry['code']}, {entry['error_code']}, {text}\n"
    if len(inner) > 101:
        inner = f"    {entry['code']},\n    {entry['error_code']},\n    {text},\n"
    return f"{name}: Final = ErrorCode(\n{inner})\n"


if __name__ == "__main__":
    MODULE.write_text(module_text(TABLE.read_text()))

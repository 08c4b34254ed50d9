"""Text between double quotes, as error messages show it. Pure."""

from __future__ import annotations

import json


def quoted(text: str) -> str:
    """Quote a text as Go's %q does for what configuration files hold."""
    return json.dumps(text, ensure_ascii=False)

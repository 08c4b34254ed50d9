#!/usr/bin/env bash
# Installs the browser that tests/interop/test_browser.py drives; does nothing where there is one.

set -euo pipefail

if command -v chromium >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [[ $(id -u) -ne 0 ]]; then
    echo "no chromium, and only root can install it with apt-get: the browser's test is skipped" >&2
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null

#!/usr/bin/env bash
# Says what this machine lacks to build Penstock, and the command that installs it.
#
# usage: check_prerequisites.sh PYTHON
# PYTHON is the interpreter to build with; empty if none was found. Exits 1 if anything is missing.

set -euo pipefail

python=${1:-}
missing=0

lacking() { # what is missing, then the command that installs it
    printf 'missing: %s\n    install it with: %s\n' "$1" "$2" >&2
    missing=1
}

if [[ -z $python ]]; then
    lacking "Python 3.11 or newer" "apt-get install -y python3.11 python3.11-venv python3.11-dev"
    exit 1
fi

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    lacking "Python 3.11 or newer ($python is $version)" \
        "apt-get install -y python3.11 python3.11-venv python3.11-dev"
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    lacking "virtual environments for Python $version" "apt-get install -y python$version-venv"
fi

if ! command -v "${CC:-gcc}" >/dev/null; then
    lacking "a C compiler (${CC:-gcc})" "apt-get install -y gcc"
fi

headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [[ ! -f $headers/Python.h ]]; then
    lacking "Python's headers ($headers/Python.h)" "apt-get install -y python$version-dev"
fi

if ! command -v java >/dev/null && [[ ! -x ${JAVA_HOME:-}/bin/java ]]; then
    lacking "Java 17 or newer, which Spark runs on" "apt-get install -y openjdk-17-jre-headless"
fi

exit "$missing"

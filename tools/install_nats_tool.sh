#!/bin/sh
# Builds the `nats` command line tool, whose `nats bench` is one of our benchmarks, into the folder
# build/nats-tool. The source comes from Go's module proxy at the version below, and is checked
# against Go's checksum database. Nothing is written outside of the folder but Go's own caches.
# Needs Go 1.25 or newer; does nothing if the tool is there in that version.
set -eu

VERSION=v0.4.0
FOLDER="$(dirname "$0")/../build/nats-tool"

if ! command -v go > /dev/null; then
    echo "Go is missing: install Go 1.25 or newer (https://go.dev/dl) to build the nats tool" >&2
    exit 1
fi
if [ "$(cat "$FOLDER/version" 2> /dev/null)" = "$VERSION" ] && [ -x "$FOLDER/nats" ]; then
    exit 0
fi
mkdir -p "$FOLDER"
cd "$FOLDER"
echo "Building the nats tool $VERSION with $(go version)"
# A module of its own, because `go install` also asks the proxy for the list of all versions, which
# not every mirror of it has.
printf 'module tool\n\ngo 1.25.0\n\nrequire github.com/nats-io/natscli %s\n' "$VERSION" > go.mod
rm -f go.sum
go build -mod=mod -o nats github.com/nats-io/natscli/nats
echo "$VERSION" > version

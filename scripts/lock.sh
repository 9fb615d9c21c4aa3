#!/bin/sh
# Compile requirements/*.in into hash-pinned requirements/*.txt that name no address.
# Needs uv on the PATH (or in $UV). Pass --upgrade to move the pins.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-uv}

compile() {
    name=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-header -c requirements/hold.in \
        "requirements/$name.in" -o "requirements/$name.txt" "$@"
}

# Later files follow the pins of earlier ones, so that one environment can hold them all.
compile base "$@"
compile build -c requirements/base.txt "$@"
compile web -c requirements/base.txt "$@"
compile gateway -c requirements/base.txt -c requirements/web.txt "$@"
compile node "$@"
compile dev -c requirements/base.txt -c requirements/build.txt -c requirements/web.txt \
    -c requirements/gateway.txt "$@"
for version in 52 60 61; do
    compile django$version -c requirements/base.txt -c requirements/build.txt -c requirements/web.txt "$@"
done
compile bench-django -c requirements/django61.txt "$@"
compile bench -c requirements/base.txt -c requirements/dev.txt "$@"
compile docs -c requirements/base.txt -c requirements/web.txt -c requirements/gateway.txt -c requirements/dev.txt "$@"
compile release -c requirements/base.txt -c requirements/dev.txt -c requirements/docs.txt "$@"

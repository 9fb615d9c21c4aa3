#!/bin/sh
# A Chromium for the browser tests: the one that is installed, else the system's package.
# Prints the path of its executable.
set -eu

find_browser() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        if found=$(command -v "$name"); then
            echo "$found"
            return 0
        fi
    done
    for found in "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
        "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
        if [ -x "$found" ]; then
            echo "$found"
            return 0
        fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

if find_browser; then
    exit 0
fi
if [ "${1:-}" = "--install" ] && command -v apt-get >/dev/null; then
    echo "No Chromium on this machine: installing the package (apt-get install chromium) ..." >&2
    export DEBIAN_FRONTEND=noninteractive
    if ! as_root apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; then
        as_root apt-get update -qq >&2
        as_root apt-get install -y -qq --no-install-recommends chromium >&2
    fi
    if find_browser; then
        exit 0
    fi
fi
echo "The browser tests need Chromium or Chrome: install one (Debian: apt-get install chromium)." >&2
exit 1

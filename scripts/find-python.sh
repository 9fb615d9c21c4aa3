#!/bin/sh
# Print the path of a Python that can build the virtual environment: 3.11 or newer, with venv.
# $PYTHON wins when it is set; otherwise the usual names are tried.
set -eu

fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    candidates=$PYTHON
else
    candidates="python3 python3.13 python3.12 python3.11 python3.14 python"
fi
for name in $candidates; do
    if fits "$name"; then
        command -v "$name"
        exit 0
    fi
done

{
    echo "Forge Jobs needs Python 3.11 or newer with its venv module, and found none (tried: $candidates)."
    echo "  Install one (Debian, Ubuntu: python3 and python3-venv; macOS: brew install python),"
    echo "  or name the one to use: make setup PYTHON=/path/to/python3.11"
} >&2
exit 1

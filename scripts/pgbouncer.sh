#!/usr/bin/env bash
# Bring Debian's pgbouncer for the tests: unpacked into the folder given, not installed, so that it
# needs no rights and starts no service. Where there is none to be had, the tests use a small pooler
# of their own and this script only says so.
set -euo pipefail
folder=$1

without() {
    echo "No pgbouncer ($1): the tests use their own pooler instead."
    exit 0
}

if PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null; then
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || without "no Debian packages here"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
echo "Fetching Debian's pgbouncer for the tests ..."
if ! apt-cache show pgbouncer >/dev/null 2>&1; then
    apt-get update -qq >/dev/null 2>&1 || true
fi
libraries=$(apt-cache depends pgbouncer 2>/dev/null | sed -n 's/.*Depends: \(libc-ares[^ ]*\|libevent[^ ]*\)$/\1/p')
fetch() {
    # shellcheck disable=SC2086
    apt-get download -qq pgbouncer $libraries >/dev/null 2>&1
}
# Lists may be older than the packages they name.
fetch || { apt-get update -qq >/dev/null 2>&1 && fetch; } || without "its package cannot be fetched"
for package in ./*.deb; do
    dpkg-deb -x "$package" unpacked
done
libs=$(dirname "$(find unpacked -name 'libcares.so*' -print -quit)")
mkdir -p "$folder/lib"
cp unpacked/usr/sbin/pgbouncer "$folder/"
cp -P unpacked/"${libs#unpacked/}"/*.so* "$folder/lib/"
chmod -R a+rX "$folder"
LD_LIBRARY_PATH="$folder/lib" "$folder/pgbouncer" --version >/dev/null 2>&1 || {
    rm -rf "$folder"
    without "it does not run here"
}

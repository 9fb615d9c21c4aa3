#!/bin/sh
# A program for a worker pool, in shell: answers with its payload (a plain text) in capitals.
echo '{"ready": true}'
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/^{"id":"\([^"]*\)".*/\1/p')
    text=$(printf '%s' "$line" | sed -n 's/.*"payload":"\([^"\\]*\)"}$/\1/p' | tr '[:lower:]' '[:upper:]')
    if [ -z "$text" ]; then
        echo "{\"id\":\"$id\",\"status\":\"dead\",\"message\":\"the payload must be a plain text\"}"
    else
        echo "shouting" >&2
        echo "{\"id\":\"$id\",\"status\":\"ok\",\"result\":\"$text\"}"
    fi
done

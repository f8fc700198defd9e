#!/bin/sh
# Starts three nodes of a Ray cluster on this machine, submits a command as a job, and ends the nodes.
# Usage: three_nodes.sh COMMAND [ARGUMENT ...]. It needs ray[default]; `ray` and `python` are found by PATH.
set -eu
umask 077
place=$(mktemp -d /tmp/nodes-XXXXXX)
port=$((20000 + $$ % 10000))
jobs=http://127.0.0.2:$((port + 1))
nodes=

end() {
    for node in $nodes; do kill "$node" 2>/dev/null || true; done
    for node in $nodes; do wait "$node" 2>/dev/null || true; done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 130' INT TERM

alive() {
    ray list nodes --address "$jobs" --filter state=ALIVE 2>/dev/null | grep -c ' ALIVE ' || true
}

# One after the other: nodes of one machine that start at the same time can get in each other's way.
start() { # its number, its address, and further options
    number=$1 address=$2
    shift 2
    ray start --block --num-cpus=1 --node-ip-address="$address" "$@" >"$place/$address" 2>&1 &
    node=$!
    nodes="$nodes $node"
    until [ "$(alive)" -ge "$number" ]; do
        kill -0 "$node" 2>/dev/null || { cat "$place/$address"; exit 1; }
        sleep 1
    done
}

python -c 'import secrets; print(secrets.token_hex(32))' >"$place/token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$place/token"
export RAY_USAGE_STATS_ENABLED=0 RAY_task_events_report_interval_ms=0

start 1 127.0.0.2 --head --port="$port" --temp-dir="$place/ray" \
    --dashboard-host=127.0.0.2 --dashboard-port="$((port + 1))"
start 2 127.0.0.3 --address="127.0.0.2:$port"
start 3 127.0.0.4 --address="127.0.0.2:$port"
ray job submit --address "$jobs" -- "$@"

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

start() { # address, and further options
    address=$1
    shift
    ray start --block --num-cpus=1 --node-ip-address="$address" "$@" >"$place/$address" 2>&1 &
    nodes="$nodes $!"
}

python -c 'import secrets; print(secrets.token_hex(32))' >"$place/token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$place/token"
export RAY_USAGE_STATS_ENABLED=0 RAY_task_events_report_interval_ms=0

start 127.0.0.2 --head --port="$port" --temp-dir="$place/ray" \
    --dashboard-host=127.0.0.2 --dashboard-port="$((port + 1))"
until ray job list --address "$jobs" >/dev/null 2>&1; do
    kill -0 $nodes || { cat "$place/127.0.0.2"; exit 1; }
    sleep 1
done
start 127.0.0.3 --address="127.0.0.2:$port"
start 127.0.0.4 --address="127.0.0.2:$port"
until [ "$(ray list nodes --address "$jobs" --filter state=ALIVE 2>/dev/null | grep -c ALIVE)" -ge 3 ]; do
    sleep 1
done
ray job submit --address "$jobs" -- "$@"

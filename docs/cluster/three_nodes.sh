#!/bin/sh
# Starts three nodes of a Ray cluster on this machine, submits a command as a job, and ends the nodes.
# Usage: three_nodes.sh COMMAND [ARGUMENT ...]; needs ray[default] in the first directory of PATH that has `ray`.
set -eu

place=$(mktemp -d /tmp/three-nodes-XXXXXX)
nodes=
end() {
    for node in $nodes; do
        kill "$node" 2>/dev/null || true
    done
    for node in $nodes; do
        wait "$node" 2>/dev/null || true
    done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 130' INT TERM

umask 077
python -c 'import secrets; print(secrets.token_hex(32))' >"$place/token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$place/token"
export RAY_USAGE_STATS_ENABLED=0 RAY_task_events_report_interval_ms=0
port=$((20000 + $$ % 10000))

ray start --head --block --num-cpus=1 --node-ip-address=127.0.0.2 --port="$port" --temp-dir="$place/ray" \
    --dashboard-host=127.0.0.2 --dashboard-port="$((port + 1))" >"$place/head" 2>&1 &
nodes="$nodes $!"
for address in 127.0.0.3 127.0.0.4; do
    until ray start --block --num-cpus=1 --node-ip-address="$address" --address="127.0.0.2:$port" \
        >"$place/$address" 2>&1; do
        sleep 1
    done &
    nodes="$nodes $!"
done

jobs=http://127.0.0.2:$((port + 1))
until ray job list --address "$jobs" >/dev/null 2>&1; do
    sleep 1
done
ray job submit --address "$jobs" -- "$@"

#!/usr/bin/env bash
# guest: it compares what tutti-info says of the devices there with what others say
# What would break: tutti-info lists other RDMA ports and GIDs than the kernel and ibv_devinfo, or calls used what ranks
# do not use.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
[ -e /sys/class/infiniband/rxe_left0 ] || { echo "this is not the guest"; exit 77; }
info="timeout 600 $BUILD_DIR/tools/tutti-info"
run="timeout 600 $BUILD_DIR/launch/tuttirun"
trap 'ip link set right0 up; rm -rf "$scratch"' EXIT

# row PATTERN: one line of the last output.
row()
{
	grep -qE -- "$1" out || complain "no '$1' in: $(cat out)"
}

# As the kernel: "DEVICE PORT GIGABITS", then "INDEX TYPE" of each GID.
of_kernel()
{
	local port
	for port in /sys/class/infiniband/*/ports/*; do
		echo "$port" "$(<"$port/rate")" | sed -E 's|.*/([^/]*)/ports/([0-9]+) ([0-9]+) Gb.*|\1 \2 \3|'
		# Entries that are empty cannot be read. There are 1024: a program for each would take minutes.
		grep -s . "$port"/gid_attrs/types/* | sed 's|.*/||; s|:| |' | sort -n
	done
}
of_info()
{
	sed -nE 's/^  (rxe[^,]*), port ([0-9]+): active, Ethernet, ([0-9]+) Gb.*; used$/\1 \2 \3/p
		s/^      GID ([0-9]+) +(RoCE v2|RoCE v1|InfiniBand) .*/\1 \2/p' out
}

expect 0 $info
of_kernel >kernel
of_info >told
[ "$(wc -l <kernel)" -ge 6 ] && diff kernel told || complain "the kernel says otherwise"
# ibv_devinfo writes IPv4 addresses as IPv6.
ibv_devinfo -v | sed -nE 's/.*GID\[ *([0-9]+)\]:\s*(::ffff:)?([^,]*), (.*)/\1 \4 \3/p' >devinfo
sed -nE 's/^      GID ([0-9]+) +(RoCE v2|RoCE v1) +[^ ]+ +([^ ]+).*/\1 \2 \3/p' out >told
[ "$(wc -l <devinfo)" -ge 4 ] && diff devinfo told || complain "ibv_devinfo says otherwise"
row '^      GID 1 +RoCE v2 +left0 +10\.7\.0\.1  chosen: RoCE v2, IPv4, not link-local$'
expect 0 env TUTTI_VERBS_GID=0 TUTTI_VERBS_DEVICES=rxe_right0:1 $info
row '^  rxe_left0, port 1: .*; not used: is not in TUTTI_VERBS_DEVICES$'
row '^      GID 0 .* right0 .*  chosen: TUTTI_VERBS_GID=0$'
row '^  rxe_right0, port 1: .*; used$'

expect 0 env TUTTI_TRANSPORTS=^shm $run -n 2 $info
row '^Ranks 0-1: messages by verbs, collectives by verbs$'
row '^  verbs +12000  chosen'
row '^  tcp +3000  possible, with less$'
# Without ucx: UCX 1.13 does not work over soft-RoCE (its own ucx_perftest does not either).
# shellcheck disable=SC2016 # each rank expands it
expect 0 env TUTTI_TRANSPORTS=^ucx $run -n 2 sh -c '[ $RANK = 0 ] || export TUTTI_VERBS_GID=9; TUTTI_HOST_ID=$RANK exec "$@"' - $info
row '^Ranks 0-1: messages by tcp, collectives by tcp$'
row "^  verbs +0  not on rank 1's guest: no RDMA port can be used: rxe_left0, port 1: has no GID"

expect 0 setpriv --bounding-set -all --inh-caps -all bash -c "ulimit -l 8192; $info"
row '^Memory that a process may lock: 8192 KiB; for verbs raise the limit \(ulimit -l unlimited'

ip link set right0 down
expect 1 env TUTTI_TRANSPORTS=verbs TUTTI_VERBS_DEVICES=rxe_left0,rxe_right0 $info
row '^  verbs +not here: no RDMA port can be used: .*rxe_left0, port 1: down; .*rxe_right0, port 1: down'
row '^  rxe_right0, port 1: down, Ethernet, 10 Gb/s, MTU [0-9]+, LID 0; not used: down$'
exit $failures

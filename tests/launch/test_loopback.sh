#!/usr/bin/env bash
# slow: 3 s
# What would break: ranks of one machine that has no 127.0.0.1, only ::1: they waited until their deadline. And two machines that
# meet at an address with a scope.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs iproute2 ip
if [ "${1-}" != inside ]; then
	if ! unshare -mn ip link add v6 type veth peer name v6b 2>err; then
		echo "a network of one's own needs root and veth: $(tail -n 1 err)"
		exit 77
	fi
	unshare -mn bash "$SOURCE_DIR/tests/launch/${0##*/}" inside
	exit
fi
export TUTTI_TIMEOUT_MS=30000
tuttirun="timeout -k 5 90 $BUILD_DIR/launch/tuttirun"

# ---- no loopback at all: there is nobody to wait for
expect 1 $tuttirun -n 2 "$program"
said '^tutti_init: rank 0 cannot serve the joining ranks: the ranks of this machine cannot meet at 127\.0\.0\.1 \(is its loopback interface up\?\): Network is unreachable'

printf '::1 localhost\n' >hosts
mount --bind hosts /etc/hosts
ip link set lo up
ip addr del 127.0.0.1/8 dev lo

# two_by COMMAND...: it starts two ranks, which add their numbers.
two_by()
{
	expect 0 "$@"
	printf 'rank %d of 2: sum 3\n' 0 1 | cmp -s - <(grep '^rank' out | sort) || complain "$*: $(head -8 out) $(head -8 err)"
}

# pair VARIABLE...: two ranks that nothing starts but this.
pair()
{
	local first
	env RANK=1 WORLD_SIZE=2 "$@" timeout -k 5 60 "$program" >other 2>&1 & first=$!
	expect 0 env RANK=0 WORLD_SIZE=2 "$@" timeout -k 5 60 "$program"
	wait $first || complain "rank 1 with $*: $(cat other)"
}

# ---- the launcher, whatever the ranks say it through
two_by $tuttirun -n 2 "$program"
two_by env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=tcp $tuttirun -n 2 "$program"
two_by env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=shm $tuttirun -n 2 "$program"
two_by env TUTTI_SECRET=ours $tuttirun -n 2 --hosts localhost "$program"
# shellcheck disable=SC2016
expect 0 $tuttirun -n 1 sh -c 'echo $MASTER_ADDR'
[ "$(cat out)" = ::1 ] || complain "the ranks meet at $(cat out)"
expect 0 timeout -k 5 60 "$BUILD_DIR/examples/mirrored/mirrored" --ranks 2 --local-ranks 1

# ---- ranks that are told, or tell each other, where
port
pair MASTER_ADDR=localhost MASTER_PORT="$port"
pair MASTER_ADDR=::1 MASTER_PORT="$port" TUTTI_SECRET=ours
pair MASTER_ADDR='[::1]' MASTER_PORT="$port" TUTTI_SECRET=ours
expect 0 timeout -k 5 60 "$BUILD_DIR/tests/ranks" -n 3 -t 50 -e WAY=url "$BUILD_DIR/tests/grow_main" kills 0
for rank in 0 1; do
	OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$$ \
		timeout -k 5 60 "$program" >mpi$rank 2>&1 &
	jobs[rank]=$!
done
for rank in 0 1; do
	wait "${jobs[rank]}" || complain "rank $rank of mpirun: $(cat mpi$rank)"
done

# ---- the page of tutti-top
timeout -k 5 60 "$BUILD_DIR/tools/tutti-top" --web >page 2>err & top=$!
for _ in $(seq 3000); do
	[ -s page ] && break
	sleep 0.01
done
kill $top
wait $top 2>/dev/null
said '^tutti-top: http://\[::1\]:[0-9]+/[0-9a-f]+/ shows the ranks' page

# ---- two machines: the first has a link-local address, with another scope on each
unshare -n sleep 1000 & second=$!
trap 'kill $second; rm -rf "$scratch"' EXIT
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add near type veth peer name far netns $second
on_second="nsenter -t $second -n"
ip addr add fd98:7::1/64 dev near nodad
$on_second ip addr add fd98:7::2/64 dev far nodad
ip addr add fe80::7:1/64 dev near nodad
ip link set near up
$on_second ip link set far up
$on_second ip link set lo up
export TUTTI_SECRET=ours
for masters in '[fe80::7:1%near] [fe80::7:1%far]' '[fd98:7::1] [fd98:7::1]'; do
	$on_second $tuttirun -n 1 --nnodes 2 --node-rank 1 --master "${masters#* }:$port" "$program" >other 2>&1 & node=$!
	expect 0 $tuttirun -n 1 --nnodes 2 --node-rank 0 --master "${masters% *}:$port" "$program"
	wait $node || complain "node 1, $masters: $(cat other)"
done
exit $failures

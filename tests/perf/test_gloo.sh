#!/usr/bin/env bash
# no_asan: it times or compares programs that other tests run here, too
# What would break: comparisons with Gloo whose programs do not start, or measure something else.
set -u
ranks_of_it="2 3" peer=gloo peer_name=Gloo peer_lacks=bfloat16 not_there=reduce_scatter not_in_place=""

peer_is_here()
{
	[ -e /usr/include/gloo/config.h ]
}

start()
{
	launch="" ranks="--ranks $1"
}

export TMPDIR=${TMPDIR:-/tmp}
. "$SOURCE_DIR/tests/perf/peer.sh"

#!/usr/bin/env bash
# no_tsan: libucp is not instrumented
# What would break: a UCX variable with which UCX does not start, or does not connect two ranks, ends in an error that
# names no variable, or that takes a living rank for a dead one.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
/sbin/ldconfig -p | grep -q 'libucp\.so\.0 ' || { echo "libucp.so.0 is not installed (Debian: libucx0)"; exit 77; }
"$BUILD_DIR/tools/tutti-info" | grep -q '^  ucx ' || { echo "this build has no ucx"; exit 77; }

# says WORDS SETTING: what two ranks say that talk by ucx alone.
says()
{
	timeout -k 5 100 env "$2" TUTTI_TRANSPORTS=ucx TUTTI_WINDOW=0 "$BUILD_DIR/launch/tuttirun" -n 2 \
		"$BUILD_DIR/perf/all_reduce_perf" -e 8 >out 2>&1 && complain "$2: it works"
	grep -q -- "$1" out || complain "$2: no '$1' in: $(cat out)"
	! grep -q 'is lost' out || complain "$2: a living rank is lost: $(cat out)"
}

says 'UCX_LOG_LEVEL=error says more' UCX_TLS=garbage
says 'UCX_LOG_LEVEL=error says more' UCX_RNDV_THRESH=much
says 'no transport of UCX connects rank . to rank .; UCX_TLS and UCX_NET_DEVICES' UCX_TLS=self
exit $failures

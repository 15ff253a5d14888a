#!/usr/bin/env bash
# What would break: unrelated processes, when tuttirun is killed after one of them got the number of a rank that was started
# again. Numbers come round after millions of processes; in a namespace they come when they are told.
set -u
if [ "${1-}" != inside ]; then
	. "$SOURCE_DIR/tests/scratch.sh"
	unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED
	# shellcheck disable=SC2016
	next='n=$(cat /proc/sys/kernel/ns_last_pid) && echo "$n" >/proc/sys/kernel/ns_last_pid'
	for way in -pf -Urpf; do
		unshare $way --mount-proc sh -c "$next" 2>/dev/null || continue
		timeout -k 5 90 unshare $way --kill-child --mount-proc bash "$SOURCE_DIR/tests/launch/test_recycled.sh" inside
		exit
	done
	echo "numbers of one's own for processes need root, or namespaces for users"
	exit 77
fi

# becomes FIELD VALUE PID: its line of /proc/PID/stat has the value there, counted from the state.
becomes()
{
	for _ in $(seq 3000); do
		[ "$(sed 's/.*) //' "/proc/$3/stat" 2>/dev/null | cut -d ' ' -f "$1")" = "$2" ] && return
		sleep 0.01
	done
	echo "FAILED: process $3 does not come to have $2 at $1: $(cat "/proc/$3/stat" 2>&1)"
	exit 1
}

# shellcheck disable=SC2016
"$BUILD_DIR/launch/tuttirun" -n 2 --max-restarts 1 sh -c '[ $RANK = 0 ] && exec sleep 100
	if [ -z "$TUTTI_RESTARTED" ]; then echo $$ >was; exit 1; fi
	sleep 100 & echo $! >child.new; mv child.new child; wait' & launcher=$!
for _ in $(seq 3000); do [ -e child ] && break; sleep 0.01; done
was=$(cat was) child=$(cat child)
[ -n "$child" ] || exit 1
guard=
# shellcheck disable=SC2013
for p in $(cat "/proc/$launcher/task/$launcher/children"); do
	[ "$(cat "/proc/$p/comm")" = tuttirun ] && guard=$p
done

# ---- another process gets the number of the rank that was
for _ in $(seq 100); do
	echo $((was - 1)) >/proc/sys/kernel/ns_last_pid
	setsid sleep 100 & unrelated=$!
	[ $unrelated = "$was" ] && break
	kill -9 $unrelated
done
[ "$unrelated" = "$was" ] || { echo "FAILED: nobody got the number $was"; exit 1; }
becomes 3 "$unrelated" "$unrelated" # it leads a group

# ---- tuttirun is killed: the guard ends what the ranks of now have started, and nobody else
kill -9 $launcher
for p in $guard $child; do
	for _ in $(seq 3000); do
		grep -q '^State:.[^ZX]' "/proc/$p/status" 2>/dev/null || break
		sleep 0.01
	done
	grep '^State:.[^ZX]' "/proc/$p/status" 2>/dev/null && { echo "FAILED: $p is still there"; exit 1; }
done
[ -n "$guard" ] || { echo "FAILED: there was no guard"; exit 1; }
kill -0 "$unrelated" 2>/dev/null && grep -q '^State:.[^ZX]' "/proc/$unrelated/status" && exit
echo "FAILED: an unrelated process was killed that had the number $was"
exit 1

#!/usr/bin/env bash
# What would break: what tutti-info says of this machine and of the ways between ranks, as tables and as JSON; which
# transports it calls possible, absent or forbidden; its exit codes.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
info="timeout -k 5 60 $BUILD_DIR/tools/tutti-info"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
unset WORLD_SIZE RANK TUTTI_TRANSPORTS TUTTI_WINDOW TUTTI_HOST_ID

said()
{
	grep -qE -- "$1" "${2:-out}" || complain "no '$1' in ${2:-out}: $(cat "${2:-out}")"
}

# is EXPRESSION: of what a --json wrote into ./out, as Python's j, with h its first machine, t the states by transport and
# p its first kind of pairs.
is()
{
	command -v python3 >/dev/null || return 0
	grep -q '^{' out || { grep -q 'jansson was not installed' err || complain "no JSON: $(cat out err)"; return 0; }
	python3 - "$1" <<-'END' || complain "not so: $1 in: $(cat out)"
		import json, sys
		j = json.load(open("out"))
		h = j["hosts"][0]
		t = {row["name"]: row["state"] for row in h["transports"]}
		p = (j.get("pairs") or [None])[0]
		sys.exit(not eval(sys.argv[1]))
	END
}
json=$($info --json >/dev/null 2>&1; echo $?) # 1: a build without jansson

# ---- alone
expect 0 $info
said '^Tutti [0-9.]+ '
said '^  shm +possible$'
said '^  tcp +possible$'
said '^/dev/shm: [0-9]+ MiB'
said '^Missing:'
expect "$json" $info --json
is 'j["size"] == 1 and h["ranks"] is None and h["works"] and t["shm"] == t["tcp"] == "possible" and "pairs" not in j'
is 'h["shm_bytes"] >= h["shm_free_bytes"] and all(m["package"] for m in h["missing"])'
expect 0 env TUTTI_TRANSPORTS=tcp $info
said '^  shm +forbidden: TUTTI_TRANSPORTS=tcp leaves it out$'
expect "$json" env TUTTI_TRANSPORTS=^shm $info -j
is 't["shm"] == "forbidden" and t["tcp"] == "possible" and h["tutti_transports"] == "^shm"'
expect 0 $run -n 1 $info
said '^  shm +possible$'
if $info | grep -qE '^  verbs +(possible|not here)' && [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	expect 1 env TUTTI_TRANSPORTS=verbs $info
	said '^  verbs +not here: this machine has no RDMA device$'
	said '^RDMA ports: none$'
	# A library of that name which cannot be loaded is the one that is found first.
	: >libibverbs.so.1
	expect 0 env LD_LIBRARY_PATH="$PWD" $info
	said '^  libibverbs\.so\.1 \(verbs\); Debian: libibverbs1$'
	# What is forbidden is not looked for.
	expect 0 env LD_LIBRARY_PATH="$PWD" TUTTI_TRANSPORTS=^verbs $info
	! grep -q libibverbs out || complain "looked for what is forbidden: $(cat out)"
fi
# A process that may lock nothing; root may lock all, so without root's rights.
locking_nothing()
{
	local drop=
	[ "$(id -u)" != 0 ] || drop='setpriv --bounding-set -all --inh-caps -all'
	$drop bash -c 'ulimit -l 0; exec "$@"' - "$@"
}
if $info | grep -q '^Memory that a process may lock'; then
	expect 0 locking_nothing $info
	said '^Memory that a process may lock: 0 KiB; for verbs raise the limit \(ulimit -l unlimited'
	expect "$json" locking_nothing $info --json
	is 'h["lock_bytes"] == 0 and "ulimit -l" in h["lock_advice"]'
fi

# ---- plugins are transports
expect 0 env TUTTI_TRANSPORT_PLUGIN="$BUILD_DIR/tests/mailbox_plugin.so" $info
said '^  mailbox +possible$'
expect 1 env TUTTI_TRANSPORT_PLUGIN=./none.so $info
said '^tutti-info: .*TUTTI_TRANSPORT_PLUGIN' err

# ---- jobs
expect 0 $run -n 2 $info
said '^Host .*, ranks 0, 1$'
said '^Window for collectives: yes'
said '^Ranks 0-1: messages by shm, collectives by window$'
said '^  shm +20000  chosen'
said '^  tcp +3000  possible'
expect 0 env TUTTI_TRANSPORTS=^shm $run -n 4 $info
said '^     3 tcp    tcp    tcp    \. '
said '^Window for collectives: none: TUTTI_TRANSPORTS leaves out shm$'
said '^Ranks 0-1, 0-2, 0-3, 1-2, 1-3, 2-3: messages by tcp, collectives by tcp$'
said '^  shm +0  forbidden: TUTTI_TRANSPORTS=\^shm leaves it out$'
expect "$json" env TUTTI_WINDOW=0 $run -n 2 $info --json
is 'j["no_window"] == "TUTTI_WINDOW is 0" and p["messages"] == p["collectives"] == "shm" and p["ranks"] == [[0, 1]]'
# Two machines with two ranks each.
# shellcheck disable=SC2016 # each rank expands it
expect "$json" $run -n 4 sh -c 'TUTTI_HOST_ID=$((RANK % 2)) exec "$@"' - $info --json
is '[host["ranks"] for host in j["hosts"]] == ["0, 2", "1, 3"] and j["no_window"] == "the ranks are on several machines"'
is '{k["messages"]: k["ranks"] for k in j["pairs"]} == {"shm": [[0, 2], [1, 3]], "tcp": [[0, 1], [0, 3], [1, 2], [2, 3]]}'
is '[c["why"] for k in j["pairs"] if k["messages"] == "tcp" for c in k["transports"] if c["name"] == "shm"] == \
	["both have it, but it does not connect them"]'

# ---- what cannot be done
expect 0 $info --help
said '^usage: tutti-info'
for words in --often -x 'machine' '--json=2' '-j x'; do
	expect 2 $info $words
	said '^tutti-info --help explains the options\.$' err
done
expect 2 $info -xj
said '^tutti-info: unknown option -x\.' err
expect 1 env TUTTI_TRANSPORTS=smoke $info
said '^tutti-info: .*there is no transport "smoke"' err
# ---- a mesh
# shellcheck disable=SC2016
expect 0 $run -n 4 sh -c 'TUTTI_HOST_ID=$((RANK / 2)) exec "$0" --mesh tp=2,dp=0' "$BUILD_DIR/tools/tutti-info"
said '^mesh tp=2,dp=2: 4 ranks$'
said '^  tp=1 +2 +3 +node 1$'
said '^  tp crosses nodes$'
said '^  dp stays in a node$'
expect 2 $run -n 2 $BUILD_DIR/tools/tutti-info --mesh dp=3
said 'the mesh dp=3 has 3 ranks, but there are 2' err
expect 2 $info --mesh dp=1 --json
said 'prints no JSON' err

exit $failures

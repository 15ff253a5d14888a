#!/usr/bin/env bash
# What would break: the numbers of ranks that tuttirun --explain prints, which are those that ranks see, on hosts, on nodes and in
# processes of several ranks; --local-ranks.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_LOCAL_RANKS

# rows: the numbers of the table, a rank a line, without machine and CPUs.
rows()
{
	sed -n '/^ *rank  *local rank/,$p' out | tail -n +2 | awk -v columns="$1" '{ $(columns + 1) = $(columns + 2) = ""; print }' |
		sed 's/ *$//'
}

# ---- two nodes of four processes: the table of the rank notation
expect 0 $run --explain -n 4 --hosts a,me@b --ssh false touch begun
[ ! -e begun ] || complain "--explain starts something"
said '^8 ranks: 2 nodes of 4 processes each\. Nothing is started\.$' out
for column in rank 'local rank' node 'world size' 'local world size' host CPUs; do
	[ "$(grep -cE "^  $column  +[a-z]" out)" -ge 1 ] || complain "no line says what $column is: $(cat out)"
done
[ "$(rows 5)" = "$(for r in {0..7}; do echo "$r $((r % 4)) $((r / 4)) 8 4"; done)" ] || complain "two nodes: $(cat out)"
said ' a +\?$' out
said ' me@b +\?$' out

# ---- the same for the tuttirun of one of them; it needs neither a program nor a secret
expect 0 $run --explain -n 2 --nnodes 2 --node-rank 1 --master a:29500
[ "$(rows 5)" = "$(for r in {0..3}; do echo "$r $((r % 2)) $((r / 2)) 4 2"; done)" ] || complain "two nodes: $(cat out)"
said "^ +0 .* \? +\?$" out
said "^ +2 .* $(hostname) +(any|[0-9,-]+)$" out

# ---- they are what ranks see
expect 0 $run --explain -n 3
# shellcheck disable=SC2016
$run -n 3 sh -c 'echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE' | sort >seen
[ "$(rows 5)" = "$(cat seen)" ] || complain "ranks see $(cat seen), not $(cat out)"

# ---- processes of several ranks
expect 0 $run --explain -n 2 --local-ranks 3
said '^6 ranks: 1 node of 2 processes each, with T = 3 ranks in each\. Nothing' out
[ "$(rows 7)" = "$(for r in {0..5}; do echo "$r $r 0 $((r / 3)) $((r % 3)) 6 6"; done)" ] || complain "threads: $(cat out)"
# shellcheck disable=SC2016
expect 0 $run -n 2 --local-ranks 3 sh -c 'echo $RANK of $WORLD_SIZE, $TUTTI_LOCAL_RANKS'
[ "$(sort out)" = $'0 of 2, 3\n1 of 2, 3' ] || complain "the variable: $(cat out)"
# shellcheck disable=SC2016
expect 0 $run -n 2 --local-ranks 3 --mesh dp=3,tp=2 sh -c 'echo $TUTTI_MESH'
said '^dp=3,tp=2$' out
expect 2 $run -n 2 --local-ranks 3 --mesh dp=2 true
expect 2 $run --explain -n 1321 --nnodes 1300 --local-ranks 2501 --node-rank 0 --master a:1 --mesh dp=2,tp=2
said 'too many: a job has 65536 ranks at most' err
expect 2 $run --explain -n 4096 --local-ranks 17
expect 2 $run -n 2 --local-ranks 0 true
said "'0' is not a value for --local-ranks: give a number from 1 to 4096\.$" err
# A program that makes another number of ranks is told so.
expect 1 $run -n 2 --local-ranks 3 "$BUILD_DIR/examples/mirrored/mirrored" --local-ranks 2
said 'config\.local_ranks is 2, but TUTTI_LOCAL_RANKS is 3 \(tuttirun --local-ranks\)' err
exit $failures

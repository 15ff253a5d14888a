#!/usr/bin/env bash
# What would break: jobs of tuttirun --hosts whose hosts have nothing but a network in common: names, addresses, who is where.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
. "$SOURCE_DIR/tests/launch/two_hosts.sh"

tuttirun="$limit $BUILD_DIR/launch/tuttirun -n 2"
ln -s rsh ssh
export PATH=$PWD:$PATH
for ssh in "--ssh ./ssh" ""; do # n1 is here: it needs no ssh
	expect 0 $tuttirun --hosts n1,n2 $ssh "$program"
	four
done
# shellcheck disable=SC2016
expect 0 $tuttirun --hosts localhost,n2 sh -c 'echo $RANK $MASTER_ADDR $(hostname)'
sort out | cmp -s - <(printf '%s n1 %s\n' 0 n1 1 n1 2 n2 3 n2) || complain "who is where: $(cat out)"
exit $failures

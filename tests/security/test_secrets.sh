#!/usr/bin/env bash
# What would break: a secret that shows, in a command line, in a log, in an error or in what ranks share. Jobs
# that end well and in several wrong ways run with all there is of logging, and their words are searched.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
api=$BUILD_DIR/tests/api
unset TUTTI_SECRET TUTTI_SECRET_FILE
export TUTTI_LOG=debug

# Nothing of the words so far contains a secret.
clean()
{
	local word
	for word in "$@"; do
		[ -n "$word" ] || complain "there is no secret to look for"
		grep -aFq -- "$word" out err && complain "the secret shows: $(grep -aF -- "$word" out err | head -2)"
	done
}

# The check sees what it is for.
echo "a line with open-sesame in it" >out
: >err
(
	complain() { exit 3; }
	clean open-sesame
)
[ $? = 3 ] || complain "a secret that shows went unseen"

# ---- tuttirun's own secret, on a job that ends well: its words, and everybody's command line
# shellcheck disable=SC2016
expect 0 $run -n 2 sh -c 'umask 077; echo "$TUTTI_SECRET" >secret.$RANK
	cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" >>lines.$RANK
	exec "$@"' - "$api" --quick world messages
secret=$(cat secret.0)
[ ${#secret} = 64 ] || complain "tuttirun's secret has ${#secret} digits"
clean "$secret"
cat lines.* >out
grep -q tuttirun out || complain "the command lines were not seen"
clean "$secret"

# ---- errors: a rank with another secret, a mistyped URL, a file, an unknown variable
other=the-wrong-one-of-two
right=the-right-one-of-two
# shellcheck disable=SC2016
expect 1 $run -n 2 sh -c '[ $RANK = 1 ] && export TUTTI_SECRET='$other' TUTTI_TIMEOUT_MS=2000
	export TUTTI_TIMEOUT_MS=3000; exec "$@"' - "$api" world
clean "$other"
echo "$right" >file
chmod 644 file
# shellcheck disable=SC2016
expect 0 $run -n 2 sh -c 'unset TUTTI_SECRET; export TUTTI_SECRET_FILE=file; exec "$@"' - "$api" world
[ "$(grep -c "the secret's file file has mode 0644" err)" = 2 ] || complain "not said once by each rank, a file that everybody can read: $(grep mode err)"
clean "$right"
exit $failures

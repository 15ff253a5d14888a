# What tests of programs share. To be sourced; leaves the caller in a folder of its own, with $failures and the
# functions below. Tests keep commands in variables, which the shell splits at blanks, and pass paths to make and to launchers,
# which split them, too. So there is no blank in the folder's path, nor in those of the tree and the build.
if [[ ${TMPDIR-} == *[[:space:]]* ]]; then
	echo "TMPDIR ('$TMPDIR') has a blank, so this test uses /tmp"
	export TMPDIR=/tmp
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0
for name in SOURCE_DIR BUILD_DIR; do
	[[ ${!name-} != *[[:space:]]* ]] || { ln -s "${!name}" "$scratch/.$name" && printf -v "$name" %s "$scratch/.$name"; }
done

complain()
{
	echo "FAILED: $*"
	failures=1
}

# expect CODE COMMAND...: runs it with its output in ./out and ./err.
expect()
{
	local code=$1 got
	shift
	"$@" >out 2>err
	got=$?
	[ "$got" = "$code" ] || complain "exit code $got instead of $code from: $* ($(head -3 err))"
}

# said PATTERN [FILE]: ./err, or that file, has such a line.
said()
{
	grep -qE -- "$1" "${2:-err}" || complain "no '$1' in ${2:-err}: $(head -12 "${2:-err}")"
}

# port: sets $port to one that nothing has: the system chooses it.
port()
{
	# shellcheck disable=SC2016
	port=$(timeout -k 5 60 "$BUILD_DIR/launch/tuttirun" -n 1 sh -c 'echo $MASTER_PORT') || complain "there is no port"
}

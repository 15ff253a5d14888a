# What tests of programs share. To be sourced; leaves the caller in a folder of its own, with $failures and the
# functions below.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

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

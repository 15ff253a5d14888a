#!/usr/bin/env bash
# slow: 2 s
# What would break: ranks of which some encrypt and some do not are told so when they join, whichever they are, and nobody
# goes on in clear. Nor does anybody with another secret.
set -u
failures=0

# said STATUS PATTERN COMMAND: two ranks that run it fail, and one of them says so.
said()
{
	local output
	output=$("$BUILD_DIR/tests/ranks" -n "$1" -t 60 -e TUTTI_TIMEOUT_MS=5000 -e TUTTI_TRANSPORTS=tcp "$(command -v bash)" -c \
		"$3"' exec "$0" world' "$BUILD_DIR/tests/api" 2>&1) && echo "$3: they joined" && failures=1 && return
	grep -Eq "$2" <<<"$output" && return
	echo "$3 said:"
	echo "$output"
	failures=1
}

if TUTTI_TLS=1 "$BUILD_DIR/tests/ranks" -n 1 "$BUILD_DIR/tests/api" world 2>&1 | grep -q OpenSSL; then
	echo "OpenSSL 3 is not installed"
	exit 77
fi
# Who comes first is said second.
both='rank ([01]) has TUTTI_TLS ([01]), rank [01] has [01]: all ranks need the same'
said 2 "$both" 'TUTTI_TLS=$RANK'
said 2 "$both" 'TUTTI_TLS=$((1 - RANK))'
said 3 'rank [012] has TUTTI_TLS [01], rank [012] has [01]: all ranks need the same' 'TUTTI_TLS=$((RANK % 2))'
said 2 'cannot prove that it knows|does not know|missing' 'TUTTI_TLS=1 TUTTI_SECRET=$RANK'
exit $failures

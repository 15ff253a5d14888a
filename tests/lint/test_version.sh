#!/usr/bin/env bash
# What would break: a user who reports a problem cannot say which version of a program it was; or a line of --help does
# not fit a terminal of 100 columns.
set -u
failures=0
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$BUILD_DIR" --prefix "$prefix" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
version=$(sed -n 's/^project(tutti VERSION \([0-9.]*\) .*/\1/p' "$SOURCE_DIR/CMakeLists.txt")
count=0
for program in "$prefix"/bin/*; do
	name=${program##*/}
	said=$(timeout 60 "$program" --version 2>&1)
	code=$?
	if [ $code != 0 ] || [ "$said" != "$name (Tutti) $version" ]; then
		echo "FAILED: $name --version ends with $code and says: $(head -3 <<<"$said")"
		failures=1
	fi
	timeout 60 "$program" --version >/dev/full && { echo "FAILED: $name --version cannot be written"; failures=1; }
	help=$(timeout 60 "$program" --help 2>&1)
	grep -q -e '--version' <<<"$help" || { echo "FAILED: $name --help: no --version"; failures=1; }
	! grep -E '.{101}' <<<"$help" || { echo "FAILED: $name --help: a line of more than 100 columns"; failures=1; }
	count=$((count + 1))
done
[ "$count" -ge 13 ] || { echo "FAILED: only $count programs are installed"; failures=1; }
exit $failures

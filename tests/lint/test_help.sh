#!/usr/bin/env bash
# What would break: a new user who asks a script for --help, and gets what the script does: a build, a soak, a new layout.
set -u
cd "$SOURCE_DIR" || exit 1
failures=0
for script in script/*; do
	said=$(timeout 10 "$script" --help 2>&1)
	code=$?
	if [ $code != 0 ] || ! grep -qE "\b${script##*/}\b" <<<"$(head -3 <<<"$said")"; then
		echo "FAILED: $script --help ends with $code and says: $(head -3 <<<"$said")"
		failures=1
	fi
done
exit $failures

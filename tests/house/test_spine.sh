#!/usr/bin/env bash
# What would break: the claim of docs/architecture.md how many functions in how many files lie between tutti_all_reduce and the wire.
set -u
cd "$SOURCE_DIR" || exit 1
found=$(python3 tests/house/spine.py "$BUILD_DIR/tests/spine") || exit 1
echo "$found"
claimed=$(sed -nE 's/^ *(Window: [0-9]+ functions in [0-9]+ files; TCP: .*)$/\1/p' docs/architecture.md)
[ "$(tail -1 <<<"$found")" = "$claimed" ] && exit 0
echo "docs/architecture.md says: ${claimed:-nothing}"
exit 1

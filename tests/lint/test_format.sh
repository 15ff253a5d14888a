#!/usr/bin/env bash
# What would break: layout by hand, and diffs full of white space.
cd "$SOURCE_DIR" || exit 1
if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
	echo "clang-format 14 is not installed"
	exit 77
fi
script/format --check

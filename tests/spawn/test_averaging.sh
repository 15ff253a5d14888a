#!/usr/bin/env bash
# What would break: ranks that train apart and average get other parameters than the same done in turns, and an evaluation on
# several ranks other means than on one.
set -u
exec timeout -k 5 300 python3 "$SOURCE_DIR/tests/spawn/averaging.py" "$BUILD_DIR"

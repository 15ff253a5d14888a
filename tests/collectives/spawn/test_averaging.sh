#!/usr/bin/env bash
# What would break: ranks that train apart and average get other parameters than the same done in turns, and an evaluation on
# several ranks other means than on one; a job that waits, or does not say why it ends, when one of its ranks is killed.
set -u
exec timeout -k 5 300 python3 "$SOURCE_DIR/tests/collectives/spawn/averaging.py" "$BUILD_DIR"

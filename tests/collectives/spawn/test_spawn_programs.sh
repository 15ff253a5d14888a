#!/usr/bin/env bash
# slow: 4 s
# What would break: a program that starts ranks of itself by tutti_spawn prints nothing twice and loses nothing, rank 0
# has its stdin, and signals from outside end ranks and program as with tuttirun.
set -u
exec timeout -k 5 300 python3 "$SOURCE_DIR/tests/collectives/spawn/spawn_programs.py" "$BUILD_DIR/tests/spawn_main"

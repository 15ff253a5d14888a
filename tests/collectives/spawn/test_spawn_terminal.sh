#!/usr/bin/env bash
# What would break: Ctrl-C in a terminal, which tells every process of a program that has started ranks by tutti_spawn, is told to
# the ranks by the program once more, or not heard at all.
set -u
exec timeout -k 5 300 python3 "$SOURCE_DIR/tests/collectives/spawn/spawn_terminal.py" "$BUILD_DIR/tests/spawn_main"

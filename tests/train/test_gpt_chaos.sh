#!/usr/bin/env bash
# slow: 10 s
# no_asan: one thread that computes for long in plain arrays
# What would break: script/chaos, and its result: killing ranks at any moment costs training no step and changes no bit.
# script/soak runs it for a minute, with every transport.
set -u
exec "$SOURCE_DIR/script/chaos" --build "$BUILD_DIR" --seconds 2 --every 0.7 --seed 1

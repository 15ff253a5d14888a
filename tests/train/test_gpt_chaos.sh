#!/usr/bin/env bash
# slow: 10 s
# no_asan: one thread that computes for long in plain arrays
# What would break: script/chaos, and what it shows: ranks that are killed at any moment of a few seconds cost training no
# step and not a bit. script/soak does it for a minute, by every transport.
set -u
exec "$SOURCE_DIR/script/chaos" --build "$BUILD_DIR" --seconds 3 --every 1 --seed 1

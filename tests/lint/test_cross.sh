#!/usr/bin/env bash
# What would break: script/soak on machines without the cross compiler, the target's libraries or its emulator, and failures
# that pass for skips. The compiler and cmake are fakes.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

# Only what the script needs beside them.
mkdir bin tree tree/script
cp "$SOURCE_DIR/script/cross" tree/script/
sed -i "s|^libraries=.*|libraries=$scratch/libraries|" tree/script/cross
for tool in bash dirname nproc tail timeout cat; do
	ln -s "$(command -v $tool)" bin/
done

# cross CODE MESSAGE
cross()
{
	expect "$1" env PATH="$scratch/bin" bash tree/script/cross built
	grep -qF -- "$2" out || complain "'$2' is not in: $(cat out)"
}

# fake NAME LINE
fake()
{
	printf '#!/bin/bash\n%s\n' "$2" >"bin/$1"
	chmod +x "bin/$1"
}

cross 77 'cross: skipped: there is no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu)'
fake aarch64-linux-gnu-gcc ''
fake aarch64-linux-gnu-objcopy ''
cross 77 'cross: skipped: there is no libsodium for it'
mkdir libraries
touch libraries/libsodium.pc
fake cmake 'echo "cmake cannot"; exit 1'
expect 1 env PATH="$scratch/bin" bash tree/script/cross built
fake cmake 'echo "$1"; [[ $1 != --build ]]'
cross 1 '--build'                                                # the compiler's warnings are errors
! grep -q 'without a warning' out || complain "what does not compile: $(cat out)"
fake cmake 'echo "$*" >>cmake.words'
cross 77 'cross: skipped: the tests; there is no cmocka'
grep -q -- '-DTUTTI_TESTS=OFF' tree/cmake.words || complain "tests were built without cmocka: $(cat tree/cmake.words)"
touch libraries/cmocka.pc
cross 77 'cross: skipped: the tests; there is no qemu-aarch64 (Debian: qemu-user)'
mkdir -p tree/built
fake qemu-aarch64 'echo "the emulator ran $1"'
cross 0 'cross: 10 tests of kernels passed under qemu'
fake qemu-aarch64 '[[ $1 != *rounding ]] || { echo "one case failed"; exit 1; }'
cross 1 'one case failed'
grep -qF 'cross: test_rounding failed under' out || complain "who failed: $(cat out)"
exit $failures

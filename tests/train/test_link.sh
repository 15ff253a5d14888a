#!/usr/bin/env bash
# slow: 5 s
# What would break: an existing trainer that needs more than 15 changed lines to become data-parallel, or then
# learns something else. Builds examples/link in a folder of its own against the installed library.
set -eu
. "$SOURCE_DIR/tests/scratch.sh"

cp -r "$SOURCE_DIR/examples/link" "$scratch/link"
cd "$scratch/link"
changed=$(diff serial.c parallel.c | grep -c '^[<>]' || true)
[ "$changed" -ge 1 ] && [ "$changed" -le 15 ] || {
	echo "serial.c becomes parallel.c by $changed changed lines; 1 to 15 are allowed"
	exit 1
}

# A library built with a sanitizer needs programs built with it.
flags=$(sed -n 's/^CMAKE_C_FLAGS:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")
cmake --install "$BUILD_DIR" --prefix "$scratch/tutti" >/dev/null
lib_dir=$(dirname "$(find "$scratch/tutti" -name 'libtutti.so' | head -1)")
cmake -S . -B build -DCMAKE_PREFIX_PATH="$scratch/tutti" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build build >/dev/null
make -s PKG_CONFIG_PATH="$lib_dir/pkgconfig" CFLAGS="-O2 $flags"
export LD_LIBRARY_PATH=$lib_dir

# same_losses WHAT: the losses on stdin are those of serial.
./serial >serial.txt
same_losses()
{
	paste serial.txt - | awk -v what="$1" '
		{ difference = $4 - $8; if (difference < 0) difference = -difference }
		$2 != $6 || !(difference <= 2e-5) { print what ": " $0; bad = 1 }
		END { if (NR < 10) { print what ": only " NR " losses"; bad = 1 } exit bad }'
}
build/serial | same_losses "cmake's serial"
build/parallel | same_losses "parallel alone"
./parallel | same_losses "make's parallel alone"
for n in 2 3 4; do
	"$scratch/tutti/bin/tuttirun" -n "$n" build/parallel | same_losses "$n ranks"
done
"$scratch/tutti/bin/tuttirun" -n 2 ./parallel | same_losses "make's parallel, 2 ranks"
# The same network with the training layer in its own memory.
build/overlap | same_losses "overlap alone"
for n in 2 3; do
	"$scratch/tutti/bin/tuttirun" -n "$n" build/overlap | same_losses "overlap, $n ranks"
	"$scratch/tutti/bin/tuttirun" -n "$n" ./overlap --zero1 | same_losses "overlap with ZeRO-1, $n ranks"
done
echo "$changed changed lines, the same losses"

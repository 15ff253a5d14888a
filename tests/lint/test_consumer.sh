#!/usr/bin/env bash
# What would break: everybody who links an installed Tutti from a folder of their own. Installs into a
# scratch folder, moves it, and builds programs of one library and of all with pkg-config and with find_package, shared and
# static.
set -eu
. "$SOURCE_DIR/tests/scratch.sh"
cmake --install "$BUILD_DIR" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/tutti"            # what is installed may be moved
cp -r "$SOURCE_DIR/tests/lint/consumer" "$scratch/user"
cd "$scratch/user"

run()
{
	local out
	out=$(env "${@:2}" "$scratch/tutti/bin/tuttirun" -n 2 "$1")
	[ "$(grep -c 'of 2, tutti 0\.2\.0: ok' <<<"$out")" = 2 ] || {
		echo "$1 under tuttirun said: $out"
		exit 1
	}
	echo "$1: ok"
}

pc_dir=$(dirname "$(find "$scratch/tutti" -name tutti.pc)")
lib_dir=$(dirname "$(find "$scratch/tutti" -name libtutti.a)")
export PKG_CONFIG_PATH=$pc_dir
# shellcheck disable=SC2046
{
	gcc main.c -o pc_shared $(pkg-config --cflags --libs tutti)
	gcc main.c -o pc_static -static $(pkg-config --static --cflags --libs tutti) 2>warnings ||
		{ cat warnings; exit 1; }
	gcc all_three.c -o pc_all_three $(pkg-config --cflags --libs tutti-train)
	gcc all_three.c -o pc_all_three_static -static $(pkg-config --static --cflags --libs tutti-train) 2>warnings ||
		{ cat warnings; exit 1; }
}
# The README's example is a program that works.
sed -n '/^    #include <tutti/,/^    }$/ s/^    //p' "$SOURCE_DIR/README.md" >hello.c
# shellcheck disable=SC2046
gcc -Wall -Wextra -Werror hello.c -o hello $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$lib_dir"
hello=$("$scratch/tutti/bin/tuttirun" -n 4 ./hello | sort)
[ "$hello" = "$(printf 'rank %d of 4: 4\n' 0 1 2 3)" ] || {
	echo "the README's example said: $hello"
	exit 1
}

run ./pc_shared LD_LIBRARY_PATH="$lib_dir"
run ./pc_static
run ./pc_all_three LD_LIBRARY_PATH="$lib_dir"
run ./pc_all_three_static
! ldd pc_static 2>/dev/null | grep -q tutti
# A program that calls collectives loads neither of the two others.
LD_LIBRARY_PATH=$lib_dir ldd pc_shared | grep -q 'libtutti_' && { echo "pc_shared loads more than libtutti"; exit 1; }

cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$scratch/tutti" >/dev/null
cmake --build build >/dev/null
run build/consumer_shared
run build/consumer_static
run build/all_three_shared
run build/all_three_static
# Libraries of different releases do not load together.
cp "$lib_dir"/libtutti_rpc.so.1 "$lib_dir"/libtutti_train.so.1 .
sed -i 's/TUTTI_PRIVATE_0\.2\.0/TUTTI_PRIVATE_9.9.9/g' libtutti_rpc.so.1
if LD_LIBRARY_PATH=$PWD:$lib_dir ./pc_all_three >mixed 2>&1 || ! grep -q "TUTTI_PRIVATE_9.9.9' not found" mixed; then
	echo "libraries of two releases: $(cat mixed)"
	exit 1
fi
! ldd build/consumer_static | grep -q tutti

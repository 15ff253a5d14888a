#!/usr/bin/env bash
# no_asan, no_tsan: Python was not linked for a sanitizer
# What would break: a wheel without a file of the package, or whose package takes another library than the wheel's.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset LIBTUTTI PYTHONPATH LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1

expect 2 python3 "$SOURCE_DIR/bindings/python/wheel"
expect 0 python3 "$SOURCE_DIR/bindings/python/wheel" wheels "$BUILD_DIR/libtutti.so.1"
wheel=$(cat out)
expect 0 python3 "$SOURCE_DIR/bindings/python/wheel" again "$BUILD_DIR/libtutti.so.1"
cmp "$wheel" "$(cat out)" || complain "the same files make another wheel"

# Installed is what is unpacked; RECORD has all of it.
expect 0 python3 -m zipfile -e "$wheel" site
(cd "$SOURCE_DIR/bindings/python" && find tutti -name '*.py' -o -name py.typed | sort) >wanted
(cd site && find tutti -name '*.py' -o -name py.typed | sort) | diff wanted - || complain "the files of the wheel differ from those of the package"
(cd site && find . -type f | sed 's|^\./||' | sort) | diff - <(cut -d, -f1 site/tutti-*.dist-info/RECORD | sort) || complain "RECORD differs"
cmp site/tutti/lib/libtutti.so.1 "$BUILD_DIR/libtutti.so.1" || complain "another library"

cat >program.py <<'END'
import tutti
with tutti.init(world_size=1) as comm:
    x = bytearray(b"x")
    comm.all_reduce(x)
print(tutti._library.lib._name, tutti.version() == tutti.__version__)
END
expect 0 env PYTHONPATH="$scratch/site" python3 program.py
[ "$(cat out)" = "$scratch/site/tutti/lib/libtutti.so.1 True" ] || complain "another library: $(cat out)"

# pip takes it for a wheel, where pip is.
if python3 -c 'import pip' 2>/dev/null; then
	expect 0 python3 -m pip install --quiet --no-deps --no-index --root-user-action=ignore --target piped "$wheel"
	[ -f piped/tutti/lib/libtutti.so.1 ] || complain "pip installs no library"
fi
exit "$failures"

#!/usr/bin/env bash
# no_asan, no_tsan: Python was not linked for a sanitizer
# What would break: a wheel that needs more of its machine than the name that auditwheel gives it says.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset LIBTUTTI PYTHONPATH LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1

{ command -v auditwheel && command -v patchelf; } >/dev/null || { echo "auditwheel or patchelf is not installed"; exit 77; }
expect 0 python3 "$SOURCE_DIR/bindings/python/wheel" wheels "$BUILD_DIR/libtutti.so.1"
expect 0 auditwheel repair -w repaired "$(cat out)"
wheel=$(echo repaired/*.whl)
[[ $wheel == repaired/tutti-*-py3-none-manylinux_*.whl ]] || complain "it is no wheel for many systems: $wheel"

# What the library needs beyond the C library is in the wheel, and taken from there.
expect 0 python3 -m zipfile -e "$wheel" site
cat >program.py <<'END'
import re, tutti
with tutti.init(world_size=1) as comm:
    x = bytearray(b"x")
    comm.all_reduce(x)
loaded = set(re.findall(r"/\S*/(?:libtutti|libsodium|libjansson)\S*", open("/proc/self/maps").read()))
print(len(loaded), [path for path in loaded if not path.startswith(SITE)])
END
sed -i "s|SITE|'$scratch/site/'|" program.py
expect 0 env PYTHONPATH="$scratch/site" python3 program.py
grep -qx '[1-3] \[\]' out || complain "libraries from elsewhere: $(cat out err)"
exit "$failures"

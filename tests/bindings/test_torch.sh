#!/usr/bin/env bash
# slow, no_asan, no_tsan: 30 s, and Python is not built with sanitizers
# Fails when tutti.torch gives another result than a plain computation or gloo, when an error does not name ranks and
# calls, or when a process does not end. TORCH_PYTHON names a python3 that has torch.
set -euo pipefail
has_torch()
{
	"$1" -c 'import torch.distributed as d; exit(not d.is_available())' 2>/dev/null
}

for python in ${TORCH_PYTHON:-python3 /usr/bin/python3} none; do
	if has_torch "$python"; then
		break
	fi
done
if [ "$python" = none ]; then
	echo "no python3 has torch: python3-torch is not installed"
	exit 77
fi
export LIBTUTTI=$BUILD_DIR/libtutti.so.1 PYTHONPATH=$SOURCE_DIR/bindings/python PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1
cd "$SOURCE_DIR/tests/bindings"
# No process substitution at timeout: its child would be in the process group of all tests, and its parent in another one.
# When it ends while a test has stopped a process, the kernel sends SIGHUP to that whole group.
said=$(mktemp)
trap 'rm -f "$said"' EXIT
for program in torch_values torch_training torch_endings torch_surface; do
	code=0
	timeout -k 5 600 "$python" "$program.py" 2>"$said" || code=$?
	grep -v 'find_unused_parameters\|InitGoogleLogging' "$said" >&2 || true
	[ "$code" = 0 ] || exit "$code"
done

#!/usr/bin/env bash
# torch_suite.sh: what is too long for test_torch.sh, with the torch of TORCH_PYTHON: its own distributed_test against gloo
# and tutti, of which each test that gloo passes and that is not for gloo alone has to pass; and what newer torch builds on
# a backend. Ends with 77 where there is no torch. BUILD_DIR: whose library, build/release if not set.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
root=$PWD/../..
python=${TORCH_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch.testing._internal.common_distributed' 2>/dev/null; then
	echo "$python has no torch, or not what torch's tests need: pip install torch expecttest setuptools"
	exit 77
fi
export LIBTUTTI=${BUILD_DIR:-$root/build/release}/libtutti.so.1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$root/bindings/python${PYTHONPATH:+:$PYTHONPATH}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
for backend in gloo tutti; do
	"$python" torch_suite.py $backend "$scratch/$backend" >"$scratch/log" 2>&1
	tail -1 "$scratch/log"
done
passed=$(grep '^pass' "$scratch/gloo" | cut -d ' ' -f 2)
if [ -z "$passed" ]; then
	echo "FAILED: gloo passes no test"
	failed=1
fi
for name in $passed; do
	if ! grep -q "^\(pass\|skip\) $name " "$scratch/tutti"; then
		echo "FAILED: $(grep "^fail $name " "$scratch/tutti" || echo "$name did not run")"
		failed=1
	fi
done
"$python" torch_features.py >"$scratch/log" 2>&1
code=$?
grep -E '^ok|^left out' "$scratch/log"
if [ $code != 0 ]; then
	cat "$scratch/log"
	failed=1
fi
exit $failed

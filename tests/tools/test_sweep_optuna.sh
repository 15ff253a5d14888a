#!/usr/bin/env bash
# slow: 8 s
# What would break: what tutti-sweep leaves to Optuna: TPE that learns nothing or forgets it in a restart, early stopping that
# stops none or the best; and, without Optuna, a message that does not say what to install.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"

# Without it, whether it is here or not: a module of the name that cannot be imported.
mkdir hidden
echo 'raise ImportError("No module named optuna")' >hidden/optuna.py
for words in '--method tpe' '--method grid --points 2 --early-stop asha'; do
	expect 2 env PYTHONPATH=hidden $sweep one.json $words --out none -- $fake {dir} 4 {lr}
	said '^tutti-sweep: .* needs Optuna, which /.*python.* does not find \(No module named optuna\): apt-get install python3-optuna, or pip install optuna\. Without it there are --method grid and random, and no --early-stop; '
done
[ ! -e none ] || complain "a folder without a sweep"
expect 0 env PYTHONPATH=hidden $sweep one.json --method grid --points 2 --out grid -- $fake {dir} 4 {lr}

for python in "${PYTHON_WITH_OPTUNA:-$python3}" /usr/bin/python3; do
	version=$($python -c 'import importlib.metadata as all; print(all.version("optuna"))' 2>/dev/null) && break
	python=
done
[ -n "$python" ] || { [ $failures = 0 ] || exit 1; echo "Optuna for Python 3 is not installed"; exit 77; }
echo "$python has Optuna $version"
$python -B "$SOURCE_DIR/tests/tools/sweep_optuna_cases.py" >cases 2>&1 || complain "$(cat cases)"
exit $failures

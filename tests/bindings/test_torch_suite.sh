#!/usr/bin/env bash
# What would break: torch's own tests that look whole over tutti although some failed, or did not run.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

# A python3 whose torch_suite.py has the verdicts of files that are called as the backends.
cat >fake <<END
#!/bin/bash
[ "\$1" != torch_suite.py ] || cp "$scratch/\$2" "\$3"
END
chmod +x fake

# suite CODE MESSAGE
suite()
{
	expect "$1" env TORCH_PYTHON="$scratch/fake" bash "$SOURCE_DIR/tests/bindings/torch_suite.sh"
	grep -qF -- "$2" out || [ -z "$2" ] || complain "'$2' is not in: $(cat out err)"
}

printf 'pass a \nfail b why\npass c \n' >gloo
printf 'pass a \nfail b why\nskip c for gloo\n' >tutti
suite 0 ''
printf 'pass a \nfail b why\nfail c a reason\n' >tutti
suite 1 'FAILED: fail c a reason'
printf 'pass a \n' >tutti
suite 1 'FAILED: c did not run'
rm tutti
suite 1 'FAILED: a did not run'
printf 'fail a why\n' >gloo
suite 1 'FAILED: gloo passes no test'
exit $failures

#!/usr/bin/env bash
# What would break: a soak that looks whole although nothing was fuzzed, since clang is not here. All that it calls are fakes,
# but for script/fuzz.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

mkdir -p bin tree/script tree/tests/{train,verbs,bindings} tree/build/asan/tests
cp "$SOURCE_DIR/script/soak" "$SOURCE_DIR/script/fuzz" tree/script/
echo 'int main(void) { return getenv("SEED") != 0; }' >tree/tests/test_seed.c
# Only what the scripts need beside them: no clang.
for tool in bash dirname nproc tail mktemp rm grep sort sed cat timeout; do
	ln -s "$(command -v $tool)" bin/
done

# fake FILE LINE
fake()
{
	printf '#!/bin/bash\n%s\n' "$2" >"$1"
	chmod +x "$1"
}

# soak CODE MESSAGE
soak()
{
	expect "$1" env PATH="$scratch/bin" bash tree/script/soak 0
	grep -qF -- "$2" out || complain "'$2' is not in: $(cat out err)"
}

fake tree/tests/train/test_gpt.sh ''
fake tree/tests/train/test_gpt_mesh.sh ''
fake bin/cmake ''
fake tree/tests/verbs/guest ''
fake tree/tests/bindings/torch_suite.sh ''
for name in test_refused test_refused_shrink test_refused_trainer test_rlimits test_save_kill; do
	fake tree/build/asan/tests/$name ''
done
for name in bootstrap test mutants faults chaos cross; do
	fake tree/script/$name ''
done
soak 0 'fuzz: skipped, as clang or its libFuzzer is not here'
grep -qE '^soak: .* passed; 1 skipped: script/fuzz$' out || complain "the last line: $(tail -1 out)"
fake tree/script/cross 'exit 77'
soak 0 'passed; 2 skipped: script/fuzz script/cross'
fake tree/build/asan/tests/test_save_kill 'echo "a save is lost"; exit $((KILLS == 50))'
soak 1 'a save is lost'
fake tree/build/asan/tests/test_save_kill ''
fake tree/script/fuzz 'echo "an input breaks it"; exit 1'
soak 1 'an input breaks it'
fake tree/script/fuzz ''
fake tree/script/cross ''
soak 0 'passed; 0 skipped'
exit $failures

#!/usr/bin/env bash
# What would break: that a name says which thing is meant. No two folders of the library have files of one name, and no two structs one tag.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
cd "$SOURCE_DIR" || exit 1
tree=$scratch/tree

# seen TEXT: the planted tree is refused, with this.
seen()
{
	python3 tests/lint/names.py "$tree" >"$scratch/said" && complain "unseen: $1"
	grep -q "$1" "$scratch/said" || complain "not '$1', but: $(cat "$scratch/said")"
}

mkdir -p "$tree/core" "$tree/train/model" "$tree/tests/lint" "$tree/perf"
touch "$tree/core/a.h" "$tree/train/model/a.c" "$tree/perf/a.c"
seen '^a 2: stands for several things: core train/model$'
table=$tree/tests/lint/same_name.txt
echo 'a 2  a reason' >"$table"
python3 tests/lint/names.py "$tree" || complain "an excuse does not count"
echo 'a 2' >"$table"
seen "'a 2' has no reason"
rm "$table" "$tree/core/a.h"
printf 'struct a {\n\tint b;\n};\nstatic struct a c;\n' >"$tree/core/b.h"
printf 'struct __attribute__((packed)) a {\n\tint b;\n};\n' >"$tree/train/model/a.c"
seen '^struct:a 2: stands for several things: core/b.h train/model/a.c$'
printf 'struct d {\n\tstruct a {\n\t\tint b;\n\t} c;\n};\nenum a { A };\n' >"$tree/train/model/a.c"
seen '^struct:a 2: stands for several things: core/b.h train/model/a.c$'
printf 'static struct a { int b; } c;\n' >"$tree/train/model/a.c"
seen '^struct:a 2: stands for several things: core/b.h train/model/a.c$'
mkdir -p "$tree/include/tutti"
mv "$tree/train/model/a.c" "$tree/include/tutti/public.h"
seen '^struct:a 2: stands for several things: core/b.h include/tutti/public.h$'
mv "$tree/include/tutti/public.h" "$tree/train/model/a.c"
echo 'struct:a 3  a reason' >"$table"
seen "'struct:a 3' is no longer so: remove this line"

python3 tests/lint/names.py . || failures=1
# The folder says it already.
git ls-files tests/train | grep /test_train_ && complain "tests of train are named after the module alone"
exit $failures

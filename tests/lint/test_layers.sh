#!/usr/bin/env bash
# What would break: a lower folder that comes to know a higher one, by a header or by a linked symbol; files that can only be
# understood together; and an engine that knows its users. First the check is shown to see violations, then it looks at the tree.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
cd "$SOURCE_DIR" || exit 1
tree=$scratch/tree

layers()
{
	python3 tests/lint/layers.py "$@"
}

# plant FILE TEXT...: files of a new tree, which has the folders of layers.txt.
plant()
{
	rm -rf "$tree" "$scratch/objects"
	mkdir -p "$tree/tests/lint"
	cp tests/lint/layers.txt "$tree/tests/lint/"
	(cd "$tree" && sed 's/^#.*//; s/:.*//' tests/lint/layers.txt | xargs mkdir -p)
	while [ $# -gt 0 ]; do
		mkdir -p "$tree/$(dirname "$1")"
		printf '%s\n' "$2" >"$tree/$1"
		shift 2
	done
}

# compile FILE...: to where the library's objects would be.
compile()
{
	for file in "$@"; do
		mkdir -p "$scratch/objects/$(dirname "$file")"
		gcc -c "$tree/$file" -o "$scratch/objects/$file.o"
	done
}

# compile_part PART FILE...: to where CMake would put the objects of this part of perf's programs.
compile_part()
{
	mkdir -p "$scratch/objects/"{tools,launch}/CMakeFiles/a.dir "$scratch/objects/perf/CMakeFiles/$1.dir"
	for file in "${@:2}"; do
		gcc -c "$tree/perf/$file" -o "$scratch/objects/perf/CMakeFiles/$1.dir/$file.o"
	done
}

# seen TEXT OPTION...: the planted tree is refused, with this.
seen()
{
	layers "$tree" "${@:2}" >"$scratch/said" && complain "unseen: $1"
	grep -q "$1" "$scratch/said" || complain "not '$1', but: $(cat "$scratch/said")"
}

# All in one tree, each a file, what it includes, and where that is.
forbidden='core/a.c core/memory/reduce.h
core/a.h collectives/plan/plan.h
core/memory/a.c transport/registry.h
core/memory/b.c core/join/rendezvous.h
transport/tcp/a.c collectives/engine/engine.h
transport/tcp/c.c transport/shm/shm.h
transport/tcp/d.c ../shm/shm.h transport/shm/shm.h
transport/a.c transport/tcp/tcp.h
core/join/a.c transport/registry.h
collectives/plan/algorithms/a.c core/status.h
collectives/plan/a.c train/buckets.h
train/a.c collectives/engine/engine.h
launch/a.c core/net.h
perf/a.c collectives/plan/plan.h
examples/gpt/a.c ../../core/log.h core/log.h
include/tutti/a.h core/status.h'
files=()
while read -r file header target; do
	files+=("$file" "#include \"$header\"" "${target:-$header}" '')
done <<<"$forbidden"
plant "${files[@]}"
layers "$tree" >"$scratch/said" && complain "no include is seen"
while read -r file header target; do
	grep -q "^$file ${target:-$header}: may not be included" "$scratch/said" || complain "unseen: $file includes $header"
done <<<"$forbidden"
plant core/a.c '  #  include "core/gone.h"'
seen '^core/a.c: includes core/gone.h, which is not there'
plant core/a.c '#include <collectives/plan/plan.h>' collectives/plan/plan.h ''
seen '^core/a.c collectives/plan/plan.h: may not be included'
plant core/a.c '#include HEADER_OF_PLANS'
seen '^core/a.c: includes HEADER_OF_PLANS, which is not a name'
plant core/a.h '#include "core/b.h"' core/b.h '#include "core/a.h"'
seen '^headers that include each other: core/a.h core/b.h'
plant collectives/attic/a.c ''
seen '^collectives/attic/a.c: its folder is not in layers.txt'
plant core/a.c ''
rmdir "$tree/core/join"
seen 'there is no folder core/join'

plant core/a.c 'int b(void); int a(void) { return b(); }' core/memory/b.c 'int b(void); int b(void) { return 0; }'
compile core/a.c core/memory/b.c
seen '^core/a.c core/memory/b.c: may not be linked: b' --objects "$scratch/objects"
plant core/a.c 'int b(void) __attribute__((weak)); int a(void) { return b(); }' core/memory/b.c 'int b(void); int b(void) { return 0; }'
compile core/a.c core/memory/b.c
seen '^core/a.c core/memory/b.c: may not be linked: b' --objects "$scratch/objects"
echo 'core/a.c core/memory/b.c  a reason' >"$tree/tests/lint/upward.txt"
layers "$tree" --objects "$scratch/objects" || complain "an excuse does not count"
rm "$tree/core/a.c"
seen "'core/a.c core/memory/b.c' is no longer so: remove this line" --objects "$scratch/objects"
plant train/a.c 'int tutti_b(void); int a(void) { return tutti_b(); }' core/b.c 'int tutti_b(void) { return 0; }'
compile train/a.c core/b.c
layers "$tree" --objects "$scratch/objects" || complain "train may not call the public functions"
plant core/a.c 'int b(void); int a(void) { return b(); }' core/b.c 'int c(void); int b(void) { return c(); }' \
	core/c.c 'int a(void); int c(void) { return a(); }'
compile core/a.c core/b.c core/c.c
seen '^core 3: files that link each other' --objects "$scratch/objects"
echo 'core 3  a reason' >"$tree/tests/lint/cycles.txt"
layers "$tree" --objects "$scratch/objects" || complain "an excused cycle does not count"
plant perf/a.c 'int b(void); int a(void) { return b(); } int main(void) { return a(); }' perf/b.c 'int c(void); int b(void) { return c(); }' \
	perf/c.c 'int a(void); int c(void) { return a(); }'
compile_part program a.c
compile_part shared b.c c.c
seen '^perf 3: files that link each other' --programs "$scratch/objects"
plant perf/a.c 'int b(void); int a(void) { return b(); } int main(void) { return a(); }' perf/b.c 'int c(void); int b(void) { return c(); }' \
	perf/c.c 'int a(void); int c(void) { return a(); }' perf/d.c 'int a(void) { return 0; } int main(void) { return a(); }'
compile_part program a.c b.c
compile_part other c.c d.c
layers "$tree" --programs "$scratch/objects" || complain "functions of one name in two programs are a cycle"
rm -rf "$scratch/objects/launch"
layers "$tree" --programs "$scratch/objects" 2>"$scratch/said" && complain "unseen: no objects of launch"

layers . --objects "$BUILD_DIR/CMakeFiles/tutti_objects.dir" --programs "$BUILD_DIR" || failures=1

# names_users FOLDER: prints where the files of an engine name a collective or a transport.
names_users()
{
	grep -rniE 'all_?reduce|all_?gather|reduce_?scatter|\bbroadcast|\bbarrier|COLL_[A-Z]|\b(tcp|shm|verbs|ucx|cuda)\b|transport_(tcp|shm|sim)|\bsim_' \
		"$1" --include='*.[ch]' | grep -v 'include "cuda/kind.h"' # streams, which only CUDA has
}

# names_transports FOLDER...: prints where files that may not know a transport by its name do.
names_transports()
{
	grep -rnE '"\^?(tcp|shm|sim)\b|\btransport_(tcp|shm|sim)\b' --include='*.[ch]' "$@" 2>/dev/null |
		grep -vE '"tcp://"|TUTTI_TRANSPORTS|^core/env.h:' # a URL of torchrun's, and the help of a variable
}

mkdir -p "$scratch/engine"
for line in 'static void all_reduce(void);' 'if (c == COLL_BARRIER)' 'extern const struct tutti_transport transport_tcp;'; do
	echo "$line" >"$scratch/engine/engine.c"
	names_users "$scratch/engine" >/dev/null || complain "unseen in the engine: $line"
done
for line in '	if (strcmp(list[i]->name, "tcp") == 0)' '	if (strncmp(name, "tcp:", 4) == 0)' 'extern const struct tutti_transport transport_shm;'; do
	echo "$line" >"$scratch/engine/describe.c"
	names_transports "$scratch/engine" >/dev/null || complain "unseen: a transport's name: $line"
done
names_users collectives/engine && complain "the engine may name no collective and no transport"
names_transports core collectives train launch tools perf && complain "only transport/ may know a transport by its name"
exit $failures

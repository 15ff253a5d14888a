#!/usr/bin/env bash
# What would break: documents that lie. Their links, paths, functions, variables, options, the picture of the folders and the
# drawing of the peers are compared with the tree and its programs. First the check is shown to see what is planted.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
cd "$SOURCE_DIR" || exit 1
tree=$scratch/tree

mkdir -p "$tree"/{docs,core,memory,script,tests/house,include/tutti,collectives/plan}
echo 'X(BARRIER, barrier, tree, 0) WINDOW(BARRIER)' >"$tree/collectives/plan/algorithm_table.h"
echo 'X(port, "TUTTI_PORT", "port", 0, 65535, 0, "where")' >"$tree/core/env.h"
echo 'tutti_status tutti_init(void); struct engine; int engine_run(void);' >"$tree/include/tutti/tutti.h"
printf 'core\nmemory\n' >"$tree/tests/house/layers.txt"
touch "$tree/memory/host.c" "$tree/tests/house/docs_invented.txt"
echo '#     script/demo --seed N' >"$tree/script/demo"
environment='    TUTTI_PORT    where [port]

    barrier          tree, window'
picture='<!-- layers -->

```
 ---- all ----
 memory | kinds
 core   | errors
```'

# page TEXT: the tree's README; the other two pages are as they should be.
page()
{
	printf '%s\n' "$1" >"$tree/README.md"
	printf '%s\n' "$environment" >"$tree/docs/environment.md"
	printf '%s\n' "$picture" >"$tree/docs/architecture.md"
}

# seen TEXT: the tree is refused, with this.
seen()
{
	python3 tests/house/docs.py "$tree" ${2:+"$2"} >"$scratch/said" && complain "unseen: $1"
	grep -qF "$1" "$scratch/said" || complain "not '$1', but: $(cat "$scratch/said")"
}

right='# A page

See [the picture](docs/architecture.md#all) of `core/env.h`, `host.c`, `engine_run()`, `struct engine`, tutti_init.

    script/demo --seed 3     TUTTI_PORT'
page "$right"
sed -i 's/^<!-- layers/# All\n\n&/' "$tree/docs/architecture.md"
sed -i 's/of `core/\nof `core/' "$tree/README.md"
python3 tests/house/docs.py "$tree" || complain "a page without faults is refused"
page 'See [this](docs/gone.md).'
seen 'README.md docs/gone.md: a link to nothing'
page 'See [this](docs/architecture.md#nowhere).'
seen 'docs/architecture.md#nowhere: there is no such heading'
page 'See core/gone.c for more.'
seen 'README.md core/gone.c: there is no such file'
page 'See `gone.c` for more.'
seen 'README.md gone.c: there is no file of that name'
page 'It calls `engine_walk()` of `struct motor`.'
seen 'README.md engine_walk(): there is no such function'
seen 'README.md struct_motor: there is no such struct'
page 'Call tutti_start first, with TUTTI_POT=1.'
seen 'README.md tutti_start: no such name'
seen 'README.md TUTTI_POT: no such name'
page "$(printf 'word %.0s' {1..30})"
seen 'README.md width: lines of more than 100 columns: 1'
environment=${environment/TUTTI_PORT /TUTTI_PORTS} page ''
seen 'docs/environment.md TUTTI_PORT: is in core/env.h and not here'
seen 'docs/environment.md TUTTI_PORTS: '
environment=${environment/tree/ring} page ''
seen 'docs/environment.md barrier:_ring,_tree: is in one of this page and collectives/plan/algorithm_table.h'
page '| 2 | TCP | 9.99 |'
seen 'README.md |_2_|_TCP_|_9.99_|: is not a row of docs/performance.md'
picture=${picture/ memory |/ core   |} page ''
seen "docs/architecture.md memory: is a layer of layers.txt; the picture has: core"
page ''
echo 'README.md core/gone.c  for a walk' >"$tree/tests/house/docs_invented.txt"
seen "'README.md core/gone.c' is no longer so"

# Options, in the real tree: a page of its own beside it, since the programs are there.
options=$scratch/options
mkdir -p "$options"
git ls-files -co --exclude-standard | grep -E '\.md$|^(perf|script|tests/house|include|collectives/plan)/|^core/env.h' |
	xargs -I{} cp --parents {} "$options" 2>/dev/null
printf '%s\n' '' '    perf/compare --rank 2' '    tuttirun -n 4 all_reduce_perf --zero' '`script/chaos --forever`, `--neverheard`' >>"$options/README.md"
seen_options()
{
	grep -qF "README.md $1" "$scratch/said" || complain "unseen: $1"
}
python3 tests/house/docs.py "$options" "$BUILD_DIR" >"$scratch/said"
seen_options 'perf/compare_--rank:'
seen_options 'all_reduce_perf_--zero:'
seen_options 'script/chaos_--forever:'
seen_options '--neverheard:'

python3 tests/house/docs.py . "$BUILD_DIR" || failures=1
script/plot --check || failures=1
exit $failures

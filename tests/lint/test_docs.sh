#!/usr/bin/env bash
# What would break: documents that lie. Their links, paths, functions, variables, options, the picture of the folders and the
# drawing of the peers are compared with the tree and its programs. First the check is shown to see what is planted.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
cd "$SOURCE_DIR" || exit 1
tree=$scratch/tree

mkdir -p "$tree"/{docs,core,transport,script,tests/lint,include/tutti,collectives/plan}
echo 'X(BARRIER, barrier, tree, 0) WINDOW(BARRIER)' >"$tree/collectives/plan/algorithm_table.h"
echo 'X(port, "TUTTI_PORT", "port", 0, 65535, 0, "where")' >"$tree/core/env.h"
echo 'tutti_status tutti_init(void); struct engine; int engine_run(void);
#define ENGINE_MAX 1024 /* works */' >"$tree/include/tutti/tutti.h"
echo 'enum { TUTTI_DDP };' >"$tree/include/tutti/train.h"
echo 'int tutti_rpc_call(void);' >"$tree/include/tutti/rpc.h"
printf 'core\ntransport\n' >"$tree/tests/lint/layers.txt"
echo 'static pthread_mutex_t lock;' >"$tree/core/queue.c"
touch "$tree/transport/host.c" "$tree/tests/lint/docs_invented.txt"
echo '#     script/demo --seed N' >"$tree/script/demo"
environment='    TUTTI_PORT    where [port]

    barrier          tree, window

| name | how the data go |
|---|---|
| tree | down and up |
| window | through shared memory |'
picture='# All

<!-- layers -->

```
 ---- all ----
 transport | messages
 core   | errors
```

<!-- locks -->

| lock | guards |
|---|---|
| `core/queue.c` | a queue |'

# page TEXT: the tree's README; the other two pages are as they should be.
page()
{
	printf '%s\n' "$1" >"$tree/README.md"
	printf '%s\n' "$environment" >"$tree/docs/environment.md"
	printf '%s\n' "$picture" >"$tree/docs/architecture.md"
}

# refused TEXT...: the tree is, with all of these.
refused()
{
	python3 tests/lint/docs.py "$tree" >"$scratch/said" && complain "unseen: $1"
	for text in "$@"; do
		grep -qF "$text" "$scratch/said" || complain "not '$text', but: $(cat "$scratch/said")"
	done
}

page '# A page

See [the picture](docs/architecture.md#all) of `core/env.h`, `host.c`, `engine_run()`, `struct engine`, tutti_init.

    script/demo --seed 3     TUTTI_PORT'
sed -i 's/of `core/\nof `core/' "$tree/README.md"
python3 tests/lint/docs.py "$tree" || complain "a page without faults is refused"
page "See [this](docs/gone.md) and [that](docs/architecture.md#nowhere), core/gone.c, \`gone.h\`, \`engine_walk()\`,
\`struct motor\` and \`RUN_SLOTZ\`, at most ENGINE_MAX (1,023). Call tutti_start with TUTTI_POT=1.
$(printf 'word %.0s' {1..30})

| 2 | TCP | 9.99 |"
refused 'README.md docs/gone.md: a link to nothing' \
	'README.md docs/architecture.md#nowhere: there is no such heading' \
	'README.md core/gone.c: there is no such file' \
	'README.md gone.h: there is no file of that name' \
	'README.md engine_walk(): there is no such function' \
	'README.md struct_motor: there is no such struct' \
	'README.md RUN_SLOTZ: no such name' \
	'README.md tutti_start: no such name' \
	'README.md TUTTI_POT: no such name' \
	'README.md ENGINE_MAX_1,023: is 1024 in the sources' \
	'README.md width: lines of more than 100 columns: 1, 3' \
	'README.md |_2_|_TCP_|_9.99_|: is not a row of docs/performance.md'
page 'Text.

``` cmake --build build/dev
in the block ```

More text.

```c
void engine_run(void); engine_stop()
```

   ```
   core/gone.c
'
refused 'README.md line_3: text behind a fence other than the language' \
	'README.md line_12: opens a block that is not closed' \
	'README.md engine_stop(): there is no such function' \
	'README.md core/gone.c: there is no such file'
# The range of README's first promise.
ratios='<!-- peers -->
| 2 | shared memory | 1.55 | 3.16 |
| 8 | shared memory | 1.43 | |
| 2 | TCP | 1.09 | 4.20 |
<!-- end -->'
# promise TEXT: the pages with that promise.
promise()
{
	page "- *Fast.* On one machine $1 times as fast as any.
$ratios"
	echo "$ratios" >"$tree/docs/performance.md"
}
promise '1.3 to 3.2'
refused 'README.md 1.3_to_3.2: its table has 1.4 to 3.2'
promise '1.4 to 3.1'
refused 'README.md 1.4_to_3.1: its table has 1.4 to 3.2'
promise 'often'
refused 'README.md Fast: has no range of ratios'
promise '1.4 to 3.2'
echo >"$tree/transport/host.c"
python3 tests/lint/docs.py "$tree" || complain "the right range is refused"
rm "$tree/docs/performance.md"
echo 'void tutti_hidden(void);' >"$tree/core/hidden.h"
echo '| `tutti_init` | `TUTTI_DDP` | `tutti_rpc_call` | TUTTI_PORT | `tutti_hidden` |' >"$tree/docs/coming-from.md"
page ''
refused 'docs/coming-from.md tutti_hidden: is not in the public headers'
[ "$(grep -c . "$scratch/said")" = 1 ] || complain "more than that: $(cat "$scratch/said")"
rm "$tree/core/hidden.h" "$tree/docs/coming-from.md"
echo '#define P2P_SLOTS 170u' >"$tree/core/slots.h"
page 'It has `P2P_SLOTS`
(171) slots.'
refused 'README.md P2P_SLOTS_171: is 170 in the sources'
rm "$tree/core/slots.h"
echo 'pthread_mutex_t lock;' >"$tree/transport/host.c"
environment=${environment/TUTTI_PORT /TUTTI_PORTS}
environment=${environment/tree,/ring,}
environment=${environment/| window |/| gate |}
picture=${picture/ transport |/ core   |}
page ''
echo 'README.md core/gone.c  for a walk' >"$tree/tests/lint/docs_invented.txt"
refused 'docs/environment.md TUTTI_PORT: is in core/env.h and not here' \
	'docs/environment.md TUTTI_PORTS: ' \
	'docs/environment.md barrier:_ring,_tree: is in one of this page and collectives/plan/algorithm_table.h' \
	'docs/environment.md row_of_gate: is in one of this page and collectives/plan/algorithm_table.h' \
	'docs/architecture.md transport: is a layer of layers.txt; the picture has: core' \
	'docs/architecture.md transport/host.c: has a lock' \
	"'README.md core/gone.c' is no longer so"

# Options, in the real tree: a page of its own beside it, since the programs are there.
options=$scratch/options
mkdir -p "$options"
git ls-files -co --exclude-standard | grep -E '\.md$|^(perf|script|tests/lint|include|collectives/plan)/|^core/env.h' |
	xargs -I{} cp --parents {} "$options" 2>/dev/null
printf '%s\n' '' '    perf/compare --rank 2' '    tutti-plan draw barrier' '    tuttirun -n 4 all_reduce_perf --zero' '`script/chaos --forever`, `--neverheard`' >>"$options/README.md"
seen_options()
{
	grep -qF "README.md $1" "$scratch/said" || complain "unseen: $1"
}
python3 tests/lint/docs.py "$options" "$BUILD_DIR" >"$scratch/said"
seen_options 'perf/compare_--rank:'
seen_options 'all_reduce_perf_--zero:'
seen_options 'tutti-plan_draw:'
seen_options 'script/chaos_--forever:'
seen_options '--neverheard:'

python3 tests/lint/docs.py . "$BUILD_DIR" || failures=1
script/plot --check || failures=1
exit $failures

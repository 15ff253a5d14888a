#!/usr/bin/env bash
# What would break: a lower folder that comes to know a higher one, and an engine that knows its users.
# First the check is shown to see violations, then it looks at the tree.
set -u
cd "$SOURCE_DIR" || exit 1
check=tests/house/includes
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# planted FILE TEXT: a tree with just this file must be refused.
planted()
{
	rm -rf "$scratch/tree"
	mkdir -p "$scratch/tree/$(dirname "$1")"
	printf '%s\n' "$2" >"$scratch/tree/$1"
	if $check "$scratch/tree" >/dev/null; then
		echo "$check did not see '$2' in $1"
		failures=1
	fi
}

planted core/a.c '#include "memory/reduce.h"'
planted core/a.h '  #  include "collectives/plan.h"'
planted memory/a.c '#include "transport/registry.h"'
planted memory/a.c '#include "rendezvous/rendezvous.h"'
planted transport/tcp/a.c '#include "collectives/engine.h"'
planted transport/tcp/a.c '#include "memory/memory.h"'
planted transport/tcp/a.c '#include "transport/shm/shm.h"'
planted transport/tcp/a.c '#include "../shm/shm.h"'
planted transport/registry.c '#include "transport/tcp/tcp.h"'
planted rendezvous/a.c '#include "transport/registry.h"'
planted collectives/a.c '#include "train/buckets.h"'
planted collectives/ring.c '#include "core/status.h"'
planted train/a.c '#include "core/status.h"'
planted train/a.c '#include "train/checkpoint/disk.h"'
planted train/state/a.c '#include "train/strategies/strategies.h"'
planted train/optimizer/a.c '#include "train/strategies/grad_flights.h"'
planted train/checkpoint/a.c '#include "train/trainer.h"'
planted launch/a.c '#include "core/net.h"'
planted perf/a.c '#include "collectives/plan.h"'
planted examples/gpt/a.c '#include "../../core/log.h"'
planted include/tutti/a.h '#include "core/status.h"'
planted collectives/engine.c 'static void all_reduce(void);'
planted collectives/engine.c '	if (spec->args.collective == COLL_BARRIER)'
planted collectives/engine_run.c 'extern const struct tutti_transport transport_tcp;'

$check . || failures=1
exit $failures

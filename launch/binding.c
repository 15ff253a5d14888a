/* Cores are dealt in hwloc's order, in which neighbours share caches: each rank has a run of whole
 * cores, and the ranks have all cores together. So a machine's cores are busy with as many ranks
 * whether one job or several use it, and a rank that is bound has all hardware threads that its
 * cores offer. */
#include "binding.h"

#include "core/rank/claims.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bindings {
	hwloc_topology_t topology;
	hwloc_bitmap_t *core;  /* the hardware threads of each core that may be used ...      */
	int *claim;            /* ... and its descriptor (claims.h)                           */
	int cores, claimed;    /* cores; how many of them, the first ones, are claimed        */
	hwloc_bitmap_t *share; /* by local rank; NULL: no rank is bound                       */
	int *share_cores, ranks;
	char why[120]; /* no rank is bound                                            */
};

static void *binding_need(void *memory)
{
	if (!memory) {
		fputs("tuttirun: no memory to divide the cores.\n", stderr);
		exit(1);
	}
	return memory;
}

/* The cores of the machine as far as this process may use them. */
static void binding_find_cores(struct bindings *b)
{
	hwloc_bitmap_t allowed = binding_need(hwloc_bitmap_alloc());
	int depth = hwloc_get_type_or_below_depth(b->topology, HWLOC_OBJ_CORE);
	int n = (int)hwloc_get_nbobjs_by_depth(b->topology, depth);

	if (hwloc_get_cpubind(b->topology, allowed, HWLOC_CPUBIND_THREAD) != 0)
		hwloc_bitmap_fill(allowed);
	b->core = binding_need(calloc((size_t)n + 1, sizeof(hwloc_bitmap_t)));
	b->claim = binding_need(calloc((size_t)n + 1, sizeof *b->claim));
	for (int i = 0; i < n; i++) {
		hwloc_obj_t core = hwloc_get_obj_by_depth(b->topology, depth, (unsigned)i);

		if (!hwloc_bitmap_intersects(core->cpuset, allowed))
			continue;
		b->core[b->cores] = binding_need(hwloc_bitmap_alloc());
		hwloc_bitmap_and(b->core[b->cores++], core->cpuset, allowed);
	}
	hwloc_bitmap_free(allowed);
}

/* Keeps the cores that no other tuttirun has, in their order. Those of an invented machine
 * (HWLOC_SYNTHETIC) need no claim. */
static void binding_claim_cores(struct bindings *b)
{
	for (int i = 0; i < b->cores; i++) {
		hwloc_bitmap_t core = b->core[i];
		int fd = -1;

		if (hwloc_topology_is_thissystem(b->topology) &&
		    (fd = claim_cpu(hwloc_bitmap_first(core))) < 0)
			continue;
		b->claim[b->claimed] = fd;
		b->core[i] = b->core[b->claimed];
		b->core[b->claimed++] = core;
	}
}

static void binding_give_claims_back(struct bindings *b)
{
	while (b->claimed > 0)
		if (b->claim[--b->claimed] >= 0)
			close(b->claim[b->claimed]);
}

/* Adds the cores from first to before end to a rank's share. */
static void binding_add_cores(struct bindings *b, int local, int first, int end)
{
	for (int i = first; i < end; i++)
		hwloc_bitmap_or(b->share[local], b->share[local], b->core[i]);
	b->share_cores[local] += end - first;
}

static void binding_deal_cores(struct bindings *b)
{
	for (int r = 0; r < b->ranks; r++)
		binding_add_cores(b, r, r * b->claimed / b->ranks, (r + 1) * b->claimed / b->ranks);
}

/* Sorts the cores by node, and writes down where each node's begin. Returns how many nodes there
 * are: several may be memory of different kinds beside the same cores. */
static int binding_sort_by_node(struct bindings *b, int *first)
{
	int nodes = hwloc_get_nbobjs_by_type(b->topology, HWLOC_OBJ_NUMANODE), used = 0, sorted = 0;

	for (int k = 0; k < nodes; k++) {
		hwloc_obj_t node =
			hwloc_get_obj_by_type(b->topology, HWLOC_OBJ_NUMANODE, (unsigned)k);

		first[used] = sorted;
		for (int i = sorted; i < b->claimed; i++) {
			hwloc_bitmap_t core = b->core[i];

			if (!hwloc_bitmap_intersects(core, node->cpuset))
				continue;
			memmove(b->core + sorted + 1, b->core + sorted,
				(size_t)(i - sorted) * sizeof *b->core);
			b->core[sorted++] = core;
		}
		used += sorted > first[used];
	}
	first[used] = sorted;
	return used;
}

static void binding_deal_nodes(struct bindings *b)
{
	int *first = binding_need(calloc((size_t)b->cores + 1, sizeof *first));
	int nodes = binding_sort_by_node(b, first);

	for (int r = 0; r < b->ranks; r++) {
		int node = r * nodes / b->ranks;

		binding_add_cores(b, r, first[node], first[node + 1]);
	}
	free(first);
}

static void binding_deal(struct bindings *b, enum bind_to to)
{
	b->share = binding_need(calloc((size_t)b->ranks, sizeof(hwloc_bitmap_t)));
	b->share_cores = binding_need(calloc((size_t)b->ranks, sizeof *b->share_cores));
	for (int r = 0; r < b->ranks; r++)
		b->share[r] = binding_need(hwloc_bitmap_alloc());
	if (to == BIND_NUMA)
		binding_deal_nodes(b);
	else
		binding_deal_cores(b);
}

static void binding_decide(struct bindings *b, const struct options *o)
{
	if (o->bind_to == BIND_NONE) {
		snprintf(b->why, sizeof b->why, "--bind-to none");
		return;
	}
	if (b->ranks > b->cores) {
		snprintf(b->why, sizeof b->why, "%d ranks may use %d core%s", b->ranks, b->cores,
			 b->cores == 1 ? "" : "s");
		return;
	}
	binding_claim_cores(b);
	if (b->ranks <= b->claimed) {
		binding_deal(b, o->bind_to);
		return;
	}
	snprintf(b->why, sizeof b->why,
		 "%d of %d cores are free, another tuttirun's ranks are bound to the rest",
		 b->claimed, b->cores);
	binding_give_claims_back(b);
}

int bindings_make(struct bindings **bindings, const struct options *o)
{
	struct bindings *b = binding_need(calloc(1, sizeof *b));

	b->ranks = o->ranks;
	if (hwloc_topology_init(&b->topology) != 0 || hwloc_topology_load(b->topology) != 0) {
		fprintf(stderr, "tuttirun: hwloc cannot read the machine's cores: %s.\n",
			strerror(errno));
		return 1;
	}
	binding_find_cores(b);
	binding_decide(b, o);
	*bindings = b;
	return 0;
}

void bindings_apply(const struct bindings *b, int local)
{
	if (!b->share || hwloc_set_cpubind(b->topology, b->share[local], 0) == 0 ||
	    !hwloc_topology_is_thissystem(b->topology))
		return;
	fprintf(stderr, "tuttirun: local rank %d could not be bound: %s.\n", local,
		strerror(errno));
}

int bindings_cores(const struct bindings *b, int local, const struct options *o)
{
	int cores = b->share ? b->share_cores[local] : b->cores / b->ranks;

	/* The ranks of a node share its cores. */
	if (b->share && o->bind_to == BIND_NUMA)
		cores = b->claimed / b->ranks;
	return cores < 1 ? 1 : cores;
}

void bindings_report(const struct bindings *b, const struct options *o)
{
	char cpus[400];

	for (int r = 0; r < b->ranks; r++) {
		int number = o->node_rank * o->ranks + r;

		if (!b->share) {
			fprintf(stderr, "tuttirun: rank %d is not bound: %s\n", number, b->why);
			continue;
		}
		hwloc_bitmap_list_snprintf(cpus, sizeof cpus, b->share[r]);
		fprintf(stderr, "tuttirun: rank %d is bound to %d core%s, CPU %s\n", number,
			b->share_cores[r], b->share_cores[r] == 1 ? "" : "s", cpus);
	}
}

const char *bindings_cpus(const struct bindings *b, int local, char *text, size_t bytes)
{
	snprintf(text, bytes, "any");
	if (b->share)
		hwloc_bitmap_list_snprintf(text, bytes, b->share[local]);
	return text;
}

void bindings_free(struct bindings *b)
{
	binding_give_claims_back(b);
	for (int i = 0; i < b->cores; i++)
		hwloc_bitmap_free(b->core[i]);
	for (int r = 0; b->share && r < b->ranks; r++)
		hwloc_bitmap_free(b->share[r]);
	hwloc_topology_destroy(b->topology);
	free(b->core);
	free(b->claim);
	free(b->share);
	free(b->share_cores);
	free(b);
}

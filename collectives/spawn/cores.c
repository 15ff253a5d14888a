/* Which cores there are is read from /sys, as hwloc does for tuttirun. Cores of one package are
 * neighbours, in the order of their CPUs, and each rank has a run of whole cores. */
#include "collectives/spawn/cores.h"

#include "core/rank/claims.h"

#include "core/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The CPUs of a core that this process may use. */
struct cpu_core {
	long package;
	int first; /* of all its CPUs, also those that are not allowed */
	int claim; /* a descriptor, or -1                              */
	cpu_set_t cpus;
};

struct cores {
	int n, ranks; /* ranks 0: none is bound */
	struct cpu_core *core;
};

/* The first number of such a file, or -1. */
static long cores_number_in(int cpu, const char *name)
{
	char path[80], text[256], *end;

	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
	if (!machine_text(path, text, sizeof text))
		return -1;
	long number = strtol(text, &end, 10);
	return end == text ? -1 : number;
}

static bool cores_add_cpu(struct cores *c, int cpu)
{
	long first = cores_number_in(cpu, "thread_siblings_list");
	int i = 0;

	if (first < 0)
		return false;
	while (i < c->n && c->core[i].first != first)
		i++;
	if (i == c->n) {
		c->core[c->n++] =
			(struct cpu_core){.package = cores_number_in(cpu, "physical_package_id"),
					  .first = (int)first,
					  .claim = -1};
	}
	CPU_SET((size_t)cpu, &c->core[i].cpus);
	return true;
}

static int cores_compare(const void *a, const void *b)
{
	const struct cpu_core *one = a, *two = b;

	if (one->package != two->package)
		return one->package < two->package ? -1 : 1;
	return (one->first > two->first) - (one->first < two->first);
}

static bool cores_find(struct cores *c)
{
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return false;
	c->core = calloc((size_t)CPU_COUNT(&allowed), sizeof *c->core);
	for (int cpu = 0; c->core && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &allowed) && !cores_add_cpu(c, cpu))
			return false;
	if (c->core)
		qsort(c->core, (size_t)c->n, sizeof *c->core, cores_compare);
	return c->core;
}

static int cores_first_allowed(const struct cpu_core *core)
{
	int cpu = 0;

	while (!CPU_ISSET((size_t)cpu, &core->cpus))
		cpu++;
	return cpu;
}

/* Keeps the cores that no other job has, in their order. */
static void cores_claim_all(struct cores *c)
{
	int claimed = 0;

	for (int i = 0; i < c->n; i++) {
		struct cpu_core core = c->core[i];

		core.claim = claim_cpu(cores_first_allowed(&core));
		if (core.claim >= 0)
			c->core[claimed++] = core;
	}
	c->n = claimed;
}

struct cores *cores_deal(int ranks)
{
	struct cores *c = calloc(1, sizeof *c);

	if (c && cores_find(c) && ranks <= c->n) {
		cores_claim_all(c);
		c->ranks = ranks <= c->n ? ranks : 0;
	}
	if (!c || c->ranks > 0)
		return c;
	cores_free(c);
	return NULL;
}

void cores_bind(const struct cores *c, int rank)
{
	cpu_set_t own;

	if (!c)
		return;
	CPU_ZERO(&own);
	for (int i = rank * c->n / c->ranks; i < (rank + 1) * c->n / c->ranks; i++)
		CPU_OR(&own, &own, &c->core[i].cpus);
	/* Where it fails the rank may run anywhere, as before. */
	if (sched_setaffinity(0, sizeof own, &own) != 0)
		return;
}

void cores_free(struct cores *c)
{
	for (int i = 0; c && i < c->n; i++)
		if (c->core[i].claim >= 0)
			close(c->core[i].claim);
	if (c)
		free(c->core);
	free(c);
}

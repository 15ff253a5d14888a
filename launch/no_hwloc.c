/* Binding in a build without hwloc: no rank is bound. */
#include "binding.h"

#include "core/words/device_list.h"

#include <stdio.h>

int bindings_make(struct bindings **bindings, const struct options *o)
{
	*bindings = NULL;
	if (o->bind_to != BIND_CORE && o->bind_to != BIND_NUMA)
		return 0;
	fprintf(stderr,
		"tuttirun: --bind-to %s needs hwloc, and this tuttirun was built without it: "
		"install libhwloc-dev and build Tutti again.\n",
		o->bind_to == BIND_CORE ? "core" : "numa");
	return 2;
}

void bindings_apply(const struct bindings *b, int local)
{
	(void)b;
	(void)local;
}

int bindings_cores(const struct bindings *b, int local, const struct options *o)
{
	int cores = automatic_cpus();

	(void)b;
	(void)local;
	return cores < o->ranks ? 1 : cores / o->ranks;
}

void bindings_report(const struct bindings *b, const struct options *o)
{
	(void)b;
	for (int r = 0; r < o->ranks; r++)
		fprintf(stderr,
			"tuttirun: rank %d is not bound: this tuttirun was built without hwloc\n",
			o->node_rank * o->ranks + r);
}

const char *bindings_cpus(const struct bindings *b, int local, char *text, size_t bytes)
{
	(void)b;
	(void)local;
	snprintf(text, bytes, "any");
	return text;
}

void bindings_free(struct bindings *b)
{
	(void)b;
}

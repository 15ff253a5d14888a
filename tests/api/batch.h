/* A batch: some calls, issued in order by every rank, completed in any order, and checked. */
#ifndef TESTS_API_BATCH_H
#define TESTS_API_BATCH_H

#include "api.h"
#include "buffer.h"
#include "data.h"

enum call_name {
	CALL_ALL_REDUCE,
	CALL_REDUCE_SCATTER,
	CALL_REDUCE, /* the last that reduces */
	CALL_ALL_GATHER,
	CALL_BROADCAST,
	CALL_BARRIER,
	CALLS,
};

/* What is drawn for a call: often every rank does it its own way, and often all do it alike,
 * because the fastest paths are there for that. */
enum call_style { STYLE_OWN, STYLE_ALL, STYLE_NONE, STYLES };

/* What all ranks agree on. */
struct call_spec {
	enum call_name name;
	size_t count;
	int root;
	struct data data;
	enum call_style in_place, blocking, shared_memory;
};

#define BATCH_MOST 64

/* Makes n calls and checks everything about them: results, guards, sources, callbacks, the
 * sequence. */
void batch_run(struct api *api, const struct call_spec *specs, int n);
/* One call, blocking, ordinary and aligned. */
void batch_simple(struct api *api, const struct call_spec *spec);
/* "all_reduce of 7 bf16, sum" for messages; text has 100 bytes. */
const char *call_describe(const struct call_spec *spec, char *text);

#endif

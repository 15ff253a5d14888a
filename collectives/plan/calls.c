/* Calls in words. */
#include "collectives/plan/calls.h"

#include "memory/dtype.h"
#include "memory/ops.h"

#include <stdio.h>

const char *const collective_names[COLL_COUNT] = {
	[COLL_ALL_REDUCE] = "all_reduce",
	[COLL_ALL_GATHER] = "all_gather",
	[COLL_REDUCE_SCATTER] = "reduce_scatter",
	[COLL_BROADCAST] = "broadcast",
	[COLL_BARRIER] = "barrier",
	[COLL_REDUCE] = "reduce",
	[COLL_GATHER] = "gather",
	[COLL_SCATTER] = "scatter",
	[COLL_ALL_TO_ALL] = "all_to_all",
	[COLL_ALL_GATHERV] = "all_gatherv",
	[COLL_REDUCE_SCATTERV] = "reduce_scatterv",
	[COLL_GATHERV] = "gatherv",
	[COLL_SCATTERV] = "scatterv",
	[COLL_ALL_TO_ALLV] = "all_to_allv",
	[COLL_SPLIT] = "comm_split",
	[COLL_DUP] = "comm_dup",
	[COLL_MEM_ALLOC] = "mem_alloc",
};

const char *call_in_words(const struct call_summary *n, char *text, size_t text_bytes)
{
	const char *name = collective_name((enum collective)n->collective);
	const char *type = dtype_name((tutti_dtype)n->dtype), *op;
	char op_text[OPS_NAME_BYTES + 16];
	unsigned long long count = n->count, sequence = n->sequence;

	op = op_identity_name((uint32_t)n->op, op_text, sizeof op_text);
	switch (n->collective) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE_SCATTER:
	case COLL_REDUCE_SCATTERV:
		snprintf(text, text_bytes, "%s(%s, %llu, %s) as #%llu", name, type, count, op,
			 sequence);
		break;
	case COLL_REDUCE:
		snprintf(text, text_bytes, "%s(%s, %llu, %s, root %d) as #%llu", name, type, count,
			 op, n->root, sequence);
		break;
	case COLL_BROADCAST:
	case COLL_GATHER:
	case COLL_GATHERV:
	case COLL_SCATTER:
	case COLL_SCATTERV:
		snprintf(text, text_bytes, "%s(%s, %llu, root %d) as #%llu", name, type, count,
			 n->root, sequence);
		break;
	case COLL_ALL_GATHER:
	case COLL_ALL_GATHERV:
	case COLL_ALL_TO_ALL:
		snprintf(text, text_bytes, "%s(%s, %llu) as #%llu", name, type, count, sequence);
		break;
	case COLL_ALL_TO_ALLV:
		snprintf(text, text_bytes, "%s(%s) as #%llu", name, type, sequence);
		break;
	case COLL_SPLIT:
	case COLL_DUP:
		snprintf(text, text_bytes, "%s() as #%llu", name, sequence);
		break;
	default:
		snprintf(text, text_bytes, "%s(%llu) as #%llu", name, count, sequence);
	}
	return text;
}

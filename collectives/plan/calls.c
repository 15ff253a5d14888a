/* Calls in words. */
#include "collectives/plan/calls.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <stdbool.h>
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
	[COLL_MEM_REPORT] = "mem_alloc",
	[COLL_MEM_ALLOC] = "mem_alloc",
};

const char *call_in_words(const struct call_summary *n, char *text, size_t text_bytes)
{
	enum collective c = (enum collective)n->collective, pattern = collective_pattern(c);
	bool has_dtype = (unsigned)c < COLL_SPLIT && c != COLL_BARRIER;
	bool has_count = c < COLL_ALL_TO_ALLV || c == COLL_MEM_ALLOC;
	char op[OPS_NAME_BYTES + 16], count[24] = "", sum[sizeof op + 2] = "", root[24] = "",
				      purpose[sizeof CALL_PURPOSE + 10] = "";

	if (has_count)
		snprintf(count, sizeof count, "%s%llu", has_dtype ? ", " : "",
			 (unsigned long long)n->count);
	if (collective_reduces(pattern))
		snprintf(sum, sizeof sum, ", %s", op_identity_name((uint32_t)n->op, op, sizeof op));
	if (collective_has_root(pattern))
		snprintf(root, sizeof root, ", root %d", n->root);
	if (n->purpose)
		snprintf(purpose, sizeof purpose, CALL_PURPOSE "%u", n->purpose);
	snprintf(text, text_bytes, "%s(%s%s%s%s) as #%llu%s%s", collective_name(c),
		 has_dtype ? dtype_name((tutti_dtype)n->dtype) : "", count, sum, root,
		 (unsigned long long)n->sequence, n->is_on_device ? " on GPUs" : "", purpose);
	return text;
}

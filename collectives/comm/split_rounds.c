/* The rounds of a split, and what its ranks tell each other in them. */
#include "collectives/comm/split.h"

#include "core/clock.h"

#include <stdio.h>

struct split_report {
	int32_t status;
	uint32_t has; /* comm_has of its child */
};

static int split_rounds_left_ms(const struct split *s)
{
	uint64_t now = clock_now_ns();
	return now + 1000000u < s->deadline_ns ? (int)((s->deadline_ns - now) / 1000000u) : 1;
}

struct split_name split_name(const struct split *s)
{
	struct split_name name;

	if (s->list)
		snprintf(name.text, sizeof name.text, "comm_create_from (tag %d)", s->tag);
	else
		snprintf(name.text, sizeof name.text, "%s #%llu", collective_name(s->collective),
			 (unsigned long long)s->sequence);
	return name;
}

tutti_status split_all_gather(struct split *s, const void *mine, size_t bytes, void *all)
{
	if (s->list)
		return list_all_gather(s, mine, bytes, all);
	tutti_call call = {.timeout_ms = split_rounds_left_ms(s)};
	struct call_args args = {.collective = s->collective,
				 .dtype = TUTTI_U8,
				 .root = s->round++,
				 .count = bytes,
				 .send = mine,
				 .recv = all};
	tutti_status status = comm_call(s->parent, &args, &call);
	s->sequence = args.sequence;
	return status;
}

/* When it is told it follows this rank's name, so it does not begin with the name again. */
void split_remember(struct split *s, tutti_status status)
{
	const char *said = last_error();
	const char *rest = outcome_behind_name(said, s->size > 0 ? s->rank : s->parent->rank);
	char in_child[60] = "";

	s->own.status = (int32_t)status;
	if (status == TUTTI_OK)
		return;
	if (s->size > 0)
		snprintf(in_child, sizeof in_child, " (%d of %d in its child)", s->rank, s->size);
	snprintf(s->own.message, sizeof s->own.message, "%s%s%.400s", in_child, rest ? "" : ": ",
		 rest ? rest : said);
}

tutti_status split_explain(struct split *s)
{
	const struct outcome *all = s->gathered;

	TRY(split_all_gather(s, &s->own, sizeof s->own, s->gathered));
	int cause = outcome_cause(all, sizeof *all, s->count, NULL, 0);
	if (cause >= 0)
		return fail(status_said(all[cause].status), "%s: rank %d%.*s", split_name(s).text,
			    split_rank(s, cause), ERROR_BYTES - 1, all[cause].message);
	return fail(TUTTI_ERR_INTERNAL, "%s: a rank has failed without a message",
		    split_name(s).text);
}

tutti_status split_agree(struct split *s, uint32_t *all_have)
{
	struct split_report *all = s->gathered;
	struct split_report mine = {s->own.status, s->child ? comm_has(s->child) : 0};

	TRY(split_all_gather(s, &mine, sizeof mine, all));
	for (int r = 0; r < s->count; r++)
		if (all[r].status != TUTTI_OK)
			return split_explain(s);
	*all_have = HAS_ALL;
	for (int r = 0; s->child && r < s->child->size; r++)
		*all_have &= all[s->ours[r].place].has;
	return TUTTI_OK;
}

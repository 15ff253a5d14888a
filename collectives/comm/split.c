/* tutti_comm_split and tutti_comm_dup: what each rank asks for, and its part of its child. The
 * rounds are in split.h. */
#include "collectives/comm/split.h"

#include "collectives/control/control.h"
#include "collectives/engine/engine.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status prepare_ask(const struct split *s, struct ask *ask)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	const struct env *env = &s->parent->settings.env;
	const char *filter = s->config->transports;
	int count;

	TRY(comm_check_config(s->config));
	ask->deterministic = s->config->deterministic;
	TRY(transport_list(list, &count, filter ? filter : env->transports, env));
	transport_names(list, count, ask->transports, sizeof ask->transports);
	return TUTTI_OK;
}

/* By color, then as the child orders its ranks. */
static int compare_asks(const void *first, const void *second)
{
	const struct ask *a = first, *b = second;

	if (a->color != b->color)
		return a->color < b->color ? -1 : 1;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->place < b->place ? -1 : a->place > b->place;
}

/* Neighbours in one child. */
static tutti_status split_check_alike(const struct split *s, const struct ask *a,
				      const struct ask *b)
{
	static const char *const numbers[] = {"0", "1"};
	bool is_number = strcmp(a->transports, b->transports) == 0;

	if (is_number && a->deterministic == b->deterministic)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "%s: rank %d has config.%s %s, rank %d has %s, and both are in the child of "
		    "color %d: all its ranks need the same",
		    split_name(s).text, split_rank(s, a->place),
		    is_number ? "deterministic" : "transports",
		    is_number ? numbers[a->deterministic != 0] : a->transports,
		    split_rank(s, b->place),
		    is_number ? numbers[b->deterministic != 0] : b->transports, (int)a->color);
}

/* Each rank checks all children, so all decide the same without another round. */
static tutti_status gather_requests(struct split *s, int color, int key)
{
	struct ask mine = {.color = color, .key = key, .place = s->me};
	size_t n = (size_t)s->count;

	if (color >= 0)
		split_remember(s, prepare_ask(s, &mine));
	mine.status = s->own.status;
	TRY(split_all_gather(s, &mine, sizeof mine, s->asks));
	for (size_t i = 0; i < n; i++)
		if (s->asks[i].status != TUTTI_OK)
			return split_explain(s);
	qsort(s->asks, n, sizeof *s->asks, compare_asks);
	for (size_t i = 1; i < n; i++)
		if (s->asks[i].color >= 0 && s->asks[i].color == s->asks[i - 1].color)
			TRY(split_check_alike(s, &s->asks[i - 1], &s->asks[i]));
	return TUTTI_OK;
}

static void split_derive_identity(const struct split *s, int color)
{
	const struct tutti_comm *parent = s->parent;
	struct {
		uint64_t parent[2], sequence;
		int64_t color; /* below 0: a tag */
	} of = {{parent->identity.id[0], parent->identity.id[1]},
		s->sequence,
		s->list ? -1 - (int64_t)s->tag : color};

	_Static_assert(sizeof of == 32, "no padding in what is hashed");
	comm_derive_identity(s->child, parent, "child's key", "child's id", &of, sizeof of);
}

/* This rank's part of its child, and what the child's other ranks must know. */
static tutti_status split_make_child(struct split *s, int color, struct member *mine)
{
	const struct ask *asks = s->asks, *end = asks + s->count;
	int size = 0, rank = 0;

	for (; asks->color != color; asks++)
		;
	for (; asks + size < end && asks[size].color == color; size++)
		if (asks[size].place == s->me)
			rank = size;
	s->ours = asks;
	s->rank = rank;
	s->size = size;
	TRY(comm_new_child(&s->child, s->parent, s->config, rank, size));
	split_derive_identity(s, color);
	s->members = calloc((size_t)size, sizeof *s->members);
	if (!s->members)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a child of %d ranks", rank,
			    size);
	for (int r = 0; r < size; r++)
		s->child->parent.ranks[r] = split_rank(s, asks[r].place);
	TRY(comm_keep_job(s->child, s->parent));
	TRY(comm_describe(s->child, mine));
	/* A copy has its parent's quorum. */
	if (size < s->parent->size)
		return TUTTI_OK;
	return consensus_descend(s->child->recovery.consensus, s->parent->recovery.consensus,
				 s->child->parent.ranks);
}

static bool parent_has_failed(void *parent)
{
	return engine_is_broken(((struct tutti_comm *)parent)->engine);
}

static tutti_status split_meet(struct split *s, int color)
{
	struct member mine = {0}, *all = s->gathered;
	uint32_t all_have;

	if (color >= 0)
		split_remember(s, split_make_child(s, color, &mine));
	mine.status = s->own.status;
	TRY(split_all_gather(s, &mine, sizeof mine, all));
	for (int r = 0; r < s->count; r++)
		if (all[r].status != TUTTI_OK)
			return split_explain(s);
	if (s->child) {
		for (int r = 0; r < s->child->size; r++)
			s->members[r] = all[s->ours[r].place];
		split_remember(s, comm_meet(s->child, s->members));
	}
	TRY(split_agree(s, &all_have));
	if (s->child)
		comm_open_window(s->child, s->deadline_ns, parent_has_failed, s->parent);
	TRY(split_agree(s, &all_have));
	if (s->child)
		comm_keep(s->child, all_have);
	return TUTTI_OK;
}

/* Other ranks may have got theirs, when the parent failed in the very last round: they are told. */
static void split_give_up(struct split *s)
{
	char text[ERROR_BYTES];

	if (!s->child)
		return;
	snprintf(text, sizeof text,
		 "rank %d aborted this communicator while it was being made: %.400s",
		 s->child->rank, last_error());
	if (s->child->engine)
		engine_fail(s->child->engine, TUTTI_ERR_ABORTED, text);
	else if (s->child->window)
		window_fail(s->child->window, TUTTI_ERR_ABORTED, text);
	comm_free(s->child);
}

static tutti_status start_child(struct split *s)
{
	s->child->select.links = s->parent->select.links; /* they use the same */
	tutti_status status = comm_start(s->child);
	if (status == TUTTI_OK)
		status = comm_connect(s->child, s->deadline_ns, parent_has_failed, s->parent);
	if (status != TUTTI_OK)
		comm_close(s->child); /* the others need not wait for this rank */
	return status;
}

static tutti_status split_make_all(struct split *s, int color, int key)
{
	uint32_t unused;

	TRY(gather_requests(s, color, key));
	TRY(split_meet(s, color));
	if (s->child)
		split_remember(s, start_child(s));
	return split_agree(s, &unused);
}

/* Without memory this rank cannot begin, and fails the parent, for the other ranks wait for it. */
static tutti_status split_allocate(struct split *s)
{
	size_t n = (size_t)s->count;
	size_t most = sizeof(struct member);

	_Static_assert(sizeof(struct member) >= sizeof(struct outcome), "the longest answer");
	s->asks = calloc(n, sizeof *s->asks);
	s->gathered = calloc(n, most);
	if (s->asks && s->gathered)
		return TUTTI_OK;
	fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for the answers of %d ranks",
	     s->parent->rank, split_name(s).text, s->count);
	engine_fail(s->parent->engine, TUTTI_ERR_MEMORY, last_error());
	return TUTTI_ERR_MEMORY;
}

tutti_status split_run(struct split *s, int color, int key, struct tutti_comm **out)
{
	tutti_status status = split_allocate(s);

	if (status == TUTTI_OK)
		status = split_make_all(s, color, key);
	if (!s->list)
		comm_leave(s->parent);
	if (status == TUTTI_OK)
		*out = s->child;
	else
		split_give_up(s);
	free(s->members);
	free(s->asks);
	free(s->gathered);
	return status;
}

static tutti_status comm_split_run(struct tutti_comm *parent, enum collective collective, int color,
				   int key, const tutti_config *config, struct tutti_comm **out)
{
	tutti_config inherited = comm_config(parent);
	struct split s = {.parent = parent,
			  .collective = collective,
			  .config = config ? config : &inherited,
			  .count = parent->size,
			  .me = parent->rank,
			  .deadline_ns = deadline_after_ms(parent->settings.timeout_ms)};

	TRY(comm_enter(parent, collective_name(collective)));
	return split_run(&s, color, key, out);
}

tutti_status comm_split(struct tutti_comm *parent, int color, int key, const tutti_config *config,
			struct tutti_comm **child)
{
	return comm_split_run(parent, COLL_SPLIT, color, key, config, child);
}

tutti_status comm_dup(struct tutti_comm *parent, struct tutti_comm **copy)
{
	return comm_split_run(parent, COLL_DUP, 0, 0, NULL, copy);
}

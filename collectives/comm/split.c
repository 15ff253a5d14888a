/* tutti_comm_split and tutti_comm_dup: children are made over their parent, by internal all_gathers
 * in its order of calls. Round by round
 *
 *     asks      what each rank wants; so each rank knows all groups and whether they are valid
 *     members   the addresses of the ranks of the children: their endpoints are open
 *     routes    whether each rank can reach the others: no rank waits at a window for one that
 * cannot windows   whether each rank shares memory: a child has a window on all of its ranks or on
 * none verdicts  whether each rank has started
 *
 * After a round in which a rank failed there is one more, in which it says why. So all ranks of the
 * parent get their child, or all get the same error and nothing is left of any child. */
#include "collectives/comm/join.h"
#include "collectives/control/consensus.h"
#include "collectives/engine/engine.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ask {
	int32_t color, key, rank, deterministic, status;
	char transports[60];
};

struct split_report {
	int32_t status, has_window;
};

struct split {
	struct tutti_comm *parent;
	enum collective collective;
	const tutti_config *config; /* the caller's, or the parent's                      */
	uint64_t sequence, deadline_ns;
	int round;
	int rank, size;         /* of this rank in its child; size 0: none so far       */
	struct outcome own;     /* how this rank has fared so far                   */
	struct ask *asks;       /* of all ranks of the parent: by color, key, rank  */
	const struct ask *ours; /* ... and there the first of our child             */
	void *gathered;         /* a round's answers, by rank of the parent         */
	struct member *members; /* of the child, in its order                       */
	struct tutti_comm *child;
};

static int left_ms(const struct split *s)
{
	uint64_t now = clock_now_ns();
	return now + 1000000u < s->deadline_ns ? (int)((s->deadline_ns - now) / 1000000u) : 1;
}

static tutti_status all_gather(struct split *s, const void *mine, size_t bytes, void *all)
{
	tutti_call call = {.timeout_ms = left_ms(s)};
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

/* Kept until the next round in which it can be told. There it follows this rank's name, so it does
 * not begin with the name again. */
static void remember(struct split *s, tutti_status status)
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

/* All ranks come here after one has failed, and return its status and its message. */
static tutti_status explain(struct split *s)
{
	const struct outcome *all = s->gathered;

	TRY(all_gather(s, &s->own, sizeof s->own, s->gathered));
	int cause = outcome_cause(all, sizeof *all, s->parent->size, NULL, 0);
	if (cause >= 0)
		return fail(status_said(all[cause].status), "%s #%llu: rank %d%.*s",
			    collective_name(s->collective), (unsigned long long)s->sequence, cause,
			    ERROR_BYTES - 1, all[cause].message);
	return fail(TUTTI_ERR_INTERNAL, "%s #%llu: a rank has failed without a message",
		    collective_name(s->collective), (unsigned long long)s->sequence);
}

/* OK when all ranks are. *all_have_window: those of this rank's child. */
static tutti_status agree(struct split *s, bool *all_have_window)
{
	struct split_report *all = s->gathered;
	struct split_report mine = {s->own.status, s->child && s->child->window};

	TRY(all_gather(s, &mine, sizeof mine, all));
	for (int r = 0; r < s->parent->size; r++)
		if (all[r].status != TUTTI_OK)
			return explain(s);
	*all_have_window = s->child != NULL;
	for (int r = 0; s->child && r < s->child->size; r++)
		*all_have_window &= all[s->ours[r].rank].has_window;
	return TUTTI_OK;
}

static tutti_status prepare_ask(const struct split *s, struct ask *ask)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	const struct env *env = &s->parent->settings.env;
	const char *filter = s->config->transports;
	int count;

	TRY(comm_check_config(s->config));
	ask->deterministic = s->config->deterministic;
	TRY(transport_list(list, &count, filter ? filter : env->transports, env));
	for (int i = 0; i < count; i++) {
		size_t used = strlen(ask->transports);
		snprintf(ask->transports + used, sizeof ask->transports - used, "%s%s",
			 i ? "," : "", list[i]->name);
	}
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
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Neighbours in one child. */
static tutti_status check_alike(const struct split *s, const struct ask *a, const struct ask *b)
{
	static const char *const numbers[] = {"0", "1"};
	bool is_number = strcmp(a->transports, b->transports) == 0;

	if (is_number && a->deterministic == b->deterministic)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_INVALID,
		"%s #%llu: rank %d has config.%s %s, rank %d has %s, and both are in the child of "
		"color %d: all its ranks need the same",
		collective_name(s->collective), (unsigned long long)s->sequence, a->rank,
		is_number ? "deterministic" : "transports",
		is_number ? numbers[a->deterministic != 0] : a->transports, b->rank,
		is_number ? numbers[b->deterministic != 0] : b->transports, (int)a->color);
}

/* Each rank checks all children, so all come to the same verdict without another round. */
static tutti_status ask(struct split *s, int color, int key)
{
	struct ask mine = {.color = color, .key = key, .rank = s->parent->rank};
	size_t n = (size_t)s->parent->size;

	if (color >= 0)
		remember(s, prepare_ask(s, &mine));
	mine.status = s->own.status;
	TRY(all_gather(s, &mine, sizeof mine, s->asks));
	for (size_t i = 0; i < n; i++)
		if (s->asks[i].status != TUTTI_OK)
			return explain(s);
	qsort(s->asks, n, sizeof *s->asks, compare_asks);
	for (size_t i = 1; i < n; i++)
		if (s->asks[i].color >= 0 && s->asks[i].color == s->asks[i - 1].color)
			TRY(check_alike(s, &s->asks[i - 1], &s->asks[i]));
	return TUTTI_OK;
}

/* The same on all its ranks, and secret from all others. */
static void derive_identity(const struct split *s, struct tutti_comm *child, int color)
{
	const struct tutti_comm *parent = s->parent;
	struct {
		uint64_t parent[2], sequence;
		int64_t color;
	} of = {{parent->identity.id[0], parent->identity.id[1]}, s->sequence, color};
	uint8_t id[TUTTI_KEY_BYTES];

	_Static_assert(sizeof of == 32, "no padding in what is hashed");
	auth_derive(child->identity.key, parent->identity.key, "child's key", &of, sizeof of);
	auth_derive(id, parent->identity.key, "child's id", &of, sizeof of);
	memcpy(child->identity.id, id, sizeof child->identity.id);
}

/* This rank's part of its child, and what the child's other ranks must know. */
static tutti_status make_child(struct split *s, int color, struct member *mine)
{
	const struct ask *asks = s->asks, *end = asks + s->parent->size;
	struct tutti_comm *child;
	int size = 0, rank = 0;

	for (; asks->color != color; asks++)
		;
	for (; asks + size < end && asks[size].color == color; size++)
		if (asks[size].rank == s->parent->rank)
			rank = size;
	s->ours = asks;
	s->rank = rank;
	s->size = size;
	TRY(comm_new(&child, s->config, &s->parent->settings.env, rank, size));
	s->child = child;
	memcpy(child->place.host_id, s->parent->place.host_id, sizeof child->place.host_id);
	child->place.ranks_on_host = s->parent->place.ranks_on_host;
	child->place.cores = s->parent->place.cores;
	child->select = s->parent->select;
	child->select.nodes = NULL; /* those were the parent's; a child of one rank has none */
	child->select.num_nodes = 1;
	derive_identity(s, child, color);
	child->parent.ranks = calloc((size_t)size, sizeof *child->parent.ranks);
	s->members = calloc((size_t)size, sizeof *s->members);
	if (!child->parent.ranks || !s->members)
		return fail(TUTTI_ERR_MEMORY, "no memory for a child of %d ranks", size);
	for (int r = 0; r < size; r++)
		child->parent.ranks[r] = asks[r].rank;
	TRY(comm_keep_ancestors(child, s->parent));
	TRY(comm_describe(child, mine));
	/* A copy has its parent's quorum. */
	if (size < s->parent->size)
		return TUTTI_OK;
	return consensus_descend(child->recovery.consensus, s->parent->recovery.consensus,
				 child->parent.ranks);
}

static bool parent_has_failed(void *parent)
{
	return engine_is_broken(((struct tutti_comm *)parent)->engine);
}

static tutti_status meet(struct split *s, int color)
{
	struct member mine = {0}, *all = s->gathered;
	bool all_have_window;

	if (color >= 0)
		remember(s, make_child(s, color, &mine));
	mine.status = s->own.status;
	TRY(all_gather(s, &mine, sizeof mine, all));
	for (int r = 0; r < s->parent->size; r++)
		if (all[r].status != TUTTI_OK)
			return explain(s);
	if (s->child) {
		for (int r = 0; r < s->child->size; r++)
			s->members[r] = all[s->ours[r].rank];
		remember(s, comm_meet(s->child, s->members));
	}
	TRY(agree(s, &all_have_window));
	if (s->child)
		comm_open_window(s->child, s->deadline_ns, parent_has_failed, s->parent);
	TRY(agree(s, &all_have_window));
	if (s->child)
		comm_keep_window(s->child, all_have_window);
	return TUTTI_OK;
}

/* Other ranks may have got theirs, when the parent failed in the very last round: they are told. */
static void give_up(struct split *s)
{
	char text[ERROR_BYTES];

	if (!s->child)
		return;
	snprintf(text, sizeof text, "rank %d has given this communicator up: %.400s",
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
		status =
			comm_connect_unless(s->child, s->deadline_ns, parent_has_failed, s->parent);
	if (status != TUTTI_OK)
		comm_close(s->child); /* the others need not wait for this rank */
	return status;
}

static tutti_status make_all(struct split *s, int color, int key)
{
	bool unused;

	TRY(ask(s, color, key));
	TRY(meet(s, color));
	if (s->child)
		remember(s, start_child(s));
	return agree(s, &unused);
}

/* The other ranks would wait in vain for one that has no memory to begin. */
static tutti_status allocate(struct split *s)
{
	size_t n = (size_t)s->parent->size;
	size_t most = sizeof(struct member);

	_Static_assert(sizeof(struct member) >= sizeof(struct outcome), "the longest answer");
	s->asks = calloc(n, sizeof *s->asks);
	s->gathered = calloc(n, most);
	if (s->asks && s->gathered)
		return TUTTI_OK;
	fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for the answers of %d ranks",
	     s->parent->rank, collective_name(s->collective), s->parent->size);
	engine_fail(s->parent->engine, TUTTI_ERR_MEMORY, last_error());
	return TUTTI_ERR_MEMORY;
}

static tutti_status run(struct split *s, int color, int key, struct tutti_comm **out)
{
	TRY(comm_enter(s->parent, collective_name(s->collective)));
	tutti_status status = allocate(s);
	if (status == TUTTI_OK)
		status = make_all(s, color, key);
	comm_leave(s->parent);
	if (status == TUTTI_OK)
		*out = s->child;
	else
		give_up(s);
	free(s->members);
	free(s->asks);
	free(s->gathered);
	return status;
}

tutti_status comm_split(struct tutti_comm *parent, int color, int key, const tutti_config *config,
			struct tutti_comm **child)
{
	tutti_config inherited = comm_config(parent);
	struct split s = {.parent = parent,
			  .collective = COLL_SPLIT,
			  .config = config ? config : &inherited,
			  .deadline_ns = deadline_after_ms(parent->settings.timeout_ms)};

	return run(&s, color, key, child);
}

tutti_status comm_dup(struct tutti_comm *parent, struct tutti_comm **copy)
{
	tutti_config inherited = comm_config(parent);
	struct split s = {.parent = parent,
			  .collective = COLL_DUP,
			  .config = &inherited,
			  .deadline_ns = deadline_after_ms(parent->settings.timeout_ms)};

	return run(&s, 0, 0, copy);
}

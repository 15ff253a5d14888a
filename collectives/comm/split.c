/* tutti_comm_split and tutti_comm_dup: the rounds, what each rank asks for and is told in them, and
 * its part of its child. split.h says how they work. */
#include "collectives/comm/split.h"

#include "collectives/comm/join.h"
#include "collectives/control/control.h"
#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"
#include "core/auth.h"
#include "core/clock.h"
#include "core/net.h"
#include "core/rank_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages among the ranks of a list, all to or from the lowest, whose tags no caller can use. */
static int split_list_left_ms(const struct split *s)
{
	int ms = deadline_poll_ms(s->deadline_ns, INT32_MAX);
	return ms > 0 ? ms : 1;
}

int split_list_leader(const struct split *s)
{
	int least = 0;

	for (int i = 1; i < s->count; i++)
		if (s->list[i] < s->list[least])
			least = i;
	return least;
}

/* Other threads may issue calls of the parent, and make children of other tags: each call waits for
 * the other's submission. */
static tutti_status split_list_submit(struct split *s, const struct send_recv *m,
				      struct tutti_work **work)
{
	tutti_call call = {.work = work};
	tutti_status status;

	while ((status = comm_call_message(s->parent, m, &call)) == TUTTI_ERR_INVALID &&
	       clock_now_ns() < s->deadline_ns)
		net_pause(0, s->deadline_ns);
	return status;
}

static tutti_status split_list_begin(struct split *s, enum p2p_side side, void *buf, size_t bytes,
				     int place, struct tutti_work **work)
{
	struct send_recv m = {.name = "comm_create_from",
			      .side = side,
			      .peer = s->list[place],
			      .tag = -1 - s->tag,
			      .dtype = TUTTI_U8,
			      .count = bytes,
			      .bytes = bytes,
			      .buf = buf,
			      .memory = &memory_host,
			      .timeout_ms = split_list_left_ms(s)};

	return split_list_submit(s, &m, work);
}

enum { LOOK_MS = 500 };

/* The ranks at first and later places, count of them, whose works are not over. The lowest rank
 * knows who has not come; the others know that it has not answered. */
static void split_list_say_awaited(const struct split *s, struct tutti_work **works, int first,
				   int count)
{
	char text[180];
	struct rank_list list;

	rank_list_begin(&list, text, sizeof text);
	for (int i = 0; i < count; i++) {
		bool is_done = true;
		if (works[i] && work_test(works[i], &is_done) == TUTTI_OK && !is_done)
			rank_list_add(&list, s->list[first + i]);
	}
	if (list.count > 0)
		long_wait_say("%s%s in tutti_%s",
			      s->me == split_list_leader(s) ? "" : "an answer of ",
			      rank_list_end(&list), split_name(s).text);
}

/* works[which], of count works with the ranks at first and later places. */
static tutti_status split_list_finish(struct split *s, struct tutti_work **works, int which,
				      int first, int count)
{
	tutti_status status;

	while ((status = work_wait(&works[which], LOOK_MS)) == TUTTI_IN_PROGRESS)
		if (long_wait_is_due(&s->wait, clock_now_ns()))
			split_list_say_awaited(s, works, first, count);
	return status;
}

tutti_status split_list_exchange(struct split *s, enum p2p_side side, void *buf, size_t bytes,
				 int place)
{
	struct tutti_work *work = NULL;

	TRY(split_list_begin(s, side, buf, bytes, place, &work));
	return split_list_finish(s, &work, 0, place, 1);
}

tutti_status split_list_exchange_all(struct split *s, enum p2p_side side, void *buf, size_t bytes,
				     size_t stride)
{
	struct tutti_work **works = calloc((size_t)s->count, sizeof(struct tutti_work *));
	tutti_status status =
		works ? TUTTI_OK
		      : fail(TUTTI_ERR_MEMORY,
			     "rank %d: comm_create_from (tag %d): no memory for %d works",
			     s->parent->rank, s->tag, s->count);

	for (int i = 0; i < s->count && status == TUTTI_OK; i++)
		if (i != s->me)
			status = split_list_begin(s, side, (uint8_t *)buf + (size_t)i * stride,
						  bytes, i, &works[i]);
	/* After an error all have ended, or are ended by it. */
	for (int i = 0; works && i < s->count; i++) {
		tutti_status ended =
			works[i] ? split_list_finish(s, works, i, 0, s->count) : TUTTI_OK;
		status = status == TUTTI_OK ? ended : status;
	}
	free(works);
	return status;
}

/* The same, where there is a list. */
static tutti_status split_list_all_gather(struct split *s, const void *mine, size_t bytes,
					  void *all)
{
	size_t total = bytes * (size_t)s->count;

	if (s->me != split_list_leader(s)) {
		TRY(split_list_exchange(s, P2P_SEND, (void *)(uintptr_t)mine, bytes,
					split_list_leader(s)));
		return split_list_exchange(s, P2P_RECV, all, total, split_list_leader(s));
	}
	memcpy((uint8_t *)all + (size_t)s->me * bytes, mine, bytes);
	TRY(split_list_exchange_all(s, P2P_RECV, all, bytes, bytes));
	return split_list_exchange_all(s, P2P_SEND, all, total, 0);
}

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

/* One round: bytes of each rank that takes part, by place. */
static tutti_status split_all_gather(struct split *s, const void *mine, size_t bytes, void *all)
{
	if (s->list)
		return split_list_all_gather(s, mine, bytes, all);
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
static void split_remember(struct split *s, tutti_status status)
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

/* The round after a failure, to which all ranks come: they return its status and message. */
static tutti_status split_explain(struct split *s)
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

/* OK when all ranks are. *all_have: of this rank's child, for comm_keep. */
static tutti_status split_agree(struct split *s, uint32_t *all_have)
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

/* child has no ancestors yet: it holds its parent's, and its parent's consensus if that misses a
 * rank. */
static tutti_status split_keep_ancestors(struct tutti_comm *child, const struct tutti_comm *comm)
{
	size_t most = (size_t)comm->recovery.ancestor_count + 1;

	child->recovery.ancestors = calloc(most, sizeof(struct consensus *));
	if (!child->recovery.ancestors)
		return fail(TUTTI_ERR_MEMORY, "no memory for %zu ancestors", most);
	for (int i = 0; i < comm->recovery.ancestor_count; i++)
		child->recovery.ancestors[child->recovery.ancestor_count++] =
			consensus_hold(comm->recovery.ancestors[i]);
	if (consensus_misses(comm->recovery.consensus))
		child->recovery.ancestors[child->recovery.ancestor_count++] =
			consensus_hold(comm->recovery.consensus);
	return TUTTI_OK;
}

tutti_status comm_new_child(struct tutti_comm **out, const struct tutti_comm *parent,
			    const tutti_config *config, int rank, int size)
{
	struct tutti_comm *child;

	TRY(comm_new(&child, config, &parent->settings.env, rank, size));
	*out = child;
	memcpy(child->place.host_id, parent->place.host_id, sizeof child->place.host_id);
	child->place.ranks_on_host = parent->place.ranks_on_host;
	child->place.cores = parent->place.cores;
	child->recovery.origin = origin_hold(parent->recovery.origin);
	if (!config->device) {
		child->settings.device = parent->settings.device;
		child->settings.device_memory = parent->settings.device_memory;
	}
	child->select = parent->select;
	child->select.nodes = NULL; /* those were the parent's; a child of one rank has none */
	child->select.num_nodes = 1;
	child->parent.ranks = calloc((size_t)size, sizeof *child->parent.ranks);
	if (!child->parent.ranks)
		return fail(TUTTI_ERR_MEMORY, "no memory for a communicator of %d ranks", size);
	return split_keep_ancestors(child, parent);
}

void comm_derive_identity(struct tutti_comm *child, const struct tutti_comm *parent,
			  const char *key_name, const char *id_name, const void *of, size_t bytes)
{
	uint8_t id[TUTTI_KEY_BYTES];

	auth_derive(child->identity.key, parent->identity.key, key_name, of, bytes);
	auth_derive(id, parent->identity.key, id_name, of, bytes);
	memcpy(child->identity.id, id, sizeof child->identity.id);
}

/* After parent.ranks was set: child is of the parent's job. MEMORY. */
static tutti_status comm_keep_job(struct tutti_comm *child, const struct tutti_comm *parent)
{
	const int *numbers = parent->parent.numbers;

	child->parent.job = job_hold(parent->parent.job);
	child->parent.numbers = calloc((size_t)child->size, sizeof *child->parent.numbers);
	if (!child->parent.numbers)
		return fail(TUTTI_ERR_MEMORY, "no memory for a communicator of %d ranks",
			    child->size);
	for (int r = 0; r < child->size; r++) {
		int rank = child->parent.ranks[r];
		child->parent.numbers[r] = numbers ? numbers[rank] : rank;
	}
	return TUTTI_OK;
}

static tutti_status split_prepare_ask(const struct split *s, struct ask *ask)
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
static int split_compare_asks(const void *first, const void *second)
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
static tutti_status split_gather_requests(struct split *s, int color, int key)
{
	struct ask mine = {.color = color, .key = key, .place = s->me};
	size_t n = (size_t)s->count;

	if (color >= 0)
		split_remember(s, split_prepare_ask(s, &mine));
	mine.status = s->own.status;
	TRY(split_all_gather(s, &mine, sizeof mine, s->asks));
	for (size_t i = 0; i < n; i++)
		if (s->asks[i].status != TUTTI_OK)
			return split_explain(s);
	qsort(s->asks, n, sizeof *s->asks, split_compare_asks);
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

static bool split_parent_has_failed(void *parent)
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
		comm_open_window(s->child, s->deadline_ns, split_parent_has_failed, s->parent);
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

static tutti_status split_start_child(struct split *s)
{
	s->child->select.links = s->parent->select.links; /* they use the same */
	tutti_status status = comm_start(s->child);
	if (status == TUTTI_OK)
		status = comm_connect(s->child, s->deadline_ns, split_parent_has_failed, s->parent);
	if (status != TUTTI_OK)
		comm_close(s->child); /* the others need not wait for this rank */
	return status;
}

static tutti_status split_make_all(struct split *s, int color, int key)
{
	uint32_t unused;

	TRY(split_gather_requests(s, color, key));
	TRY(split_meet(s, color));
	if (s->child)
		split_remember(s, split_start_child(s));
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

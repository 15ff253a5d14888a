/* Messages among the ranks of a list, all to or from the lowest, whose tags no caller can use. */
#include "collectives/comm/split.h"

#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"

#include "core/clock.h"
#include "core/net.h"
#include "core/rank_list.h"

#include <stdlib.h>
#include <string.h>

static int split_list_left_ms(const struct split *s)
{
	int ms = deadline_poll_ms(s->deadline_ns, INT32_MAX);
	return ms > 0 ? ms : 1;
}

int list_leader(const struct split *s)
{
	int least = 0;

	for (int i = 1; i < s->count; i++)
		if (s->list[i] < s->list[least])
			least = i;
	return least;
}

/* Other threads may issue calls of the parent, and make children of other tags: each call waits for
 * the other's submission. */
static tutti_status split_list_submit(struct split *s, const struct task_spec *spec,
				      struct tutti_work **work)
{
	tutti_call call = {.work = work};
	struct task_spec own = *spec;
	tutti_status status;

	while ((status = comm_call_message(s->parent, &own, &call)) == TUTTI_ERR_INVALID &&
	       clock_now_ns() < s->deadline_ns)
		net_pause(0, s->deadline_ns);
	return status;
}

static tutti_status split_list_begin(struct split *s, enum p2p_side side, void *buf, size_t bytes,
				     int place, struct tutti_work **work)
{
	bool sends = side == P2P_SEND;
	struct task_spec spec = {.kind = &p2p_tasks,
				 .memory = &memory_host,
				 .send_bytes = sends ? bytes : 0,
				 .recv_bytes = sends ? 0 : bytes,
				 .args = {.dtype = TUTTI_U8,
					  .count = bytes,
					  .send = sends ? buf : NULL,
					  .recv = sends ? NULL : buf},
				 .p2p = {.side = side, .peer = s->list[place], .tag = -1 - s->tag},
				 .name = "comm_create_from",
				 .algorithm = "p2p",
				 .timeout_ms = split_list_left_ms(s)};

	return split_list_submit(s, &spec, work);
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
		long_wait_say("%s%s in tutti_%s", s->me == list_leader(s) ? "" : "an answer of ",
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

tutti_status list_exchange(struct split *s, enum p2p_side side, void *buf, size_t bytes, int place)
{
	struct tutti_work *work = NULL;

	TRY(split_list_begin(s, side, buf, bytes, place, &work));
	return split_list_finish(s, &work, 0, place, 1);
}

tutti_status list_exchange_all(struct split *s, enum p2p_side side, void *buf, size_t bytes,
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

tutti_status list_all_gather(struct split *s, const void *mine, size_t bytes, void *all)
{
	size_t total = bytes * (size_t)s->count;

	if (s->me != list_leader(s)) {
		TRY(list_exchange(s, P2P_SEND, (void *)(uintptr_t)mine, bytes, list_leader(s)));
		return list_exchange(s, P2P_RECV, all, total, list_leader(s));
	}
	memcpy((uint8_t *)all + (size_t)s->me * bytes, mine, bytes);
	TRY(list_exchange_all(s, P2P_RECV, all, bytes, bytes));
	return list_exchange_all(s, P2P_SEND, all, total, 0);
}

/* Messages match by position: the k-th that a rank sends to a peer is the k-th that the peer
 * receives from it. So both must count alike, and be equally long. */
#include "check.h"
#include "lane_map.h"

#include <stdio.h>

/* Of all_to_all a block has one number at its sender and another at its receiver; that the right
 * one arrives is for the execution to find out. */
static bool has_common_shapes(const struct plan_set *set)
{
	return set->algorithm->collective != COLL_ALL_TO_ALL;
}

static bool is_as_long(const struct plan_set *set, const struct plan *a, uint32_t send,
		       const struct plan *b, uint32_t recv)
{
	struct refs from = look_message(a, send), to = look_message(b, recv);

	if (from.n != to.n)
		return false;
	for (uint32_t i = 0; i < from.n && has_common_shapes(set); i++)
		if (plan_shape_of(a, from.at[i]) != plan_shape_of(b, to.at[i]))
			return false;
	return true;
}

static uint32_t step_at(const struct plan *p, uint32_t lane, uint32_t k)
{
	return p->order[p->lanes[lane].first + k];
}

static uint32_t messages_of(const struct plan *p, uint32_t lane)
{
	return lane ? p->lanes[lane - 1].count : 0;
}

/* The k-th message is the last of one end only. */
static bool messages_alone(const struct plan *p, uint32_t lane, uint32_t k, struct finding *f)
{
	uint32_t step = step_at(p, lane, k);
	char words[512];

	look_step_in_words(p, step, words, sizeof words);
	if (p->lanes[lane].sends)
		return finding_says(f, "Rank %d: %s is message %u to rank %d, which receives %u.",
				    p->rank, words, k + 1, p->steps[step].peer, k);
	return finding_says(f, "Rank %d: %s waits for message %u of rank %d, which sends %u.",
			    p->rank, words, k + 1, p->steps[step].peer, k);
}

static bool check_pair(const struct plan_set *set, const struct lane_map *map, int from, int to,
		       struct finding *f)
{
	const struct plan *a = set->of[from], *b = set->of[to];
	uint32_t out = lane_map_find(map, true, from, to);
	uint32_t in = lane_map_find(map, false, to, from);
	uint32_t sent = messages_of(a, out), received = messages_of(b, in);

	for (uint32_t k = 0; k < sent && k < received; k++) {
		uint32_t send = step_at(a, out - 1, k), recv = step_at(b, in - 1, k);
		char send_words[512], recv_words[512];
		if (!is_as_long(set, a, send, b, recv))
			return finding_says(
				f, "Rank %d: %s meets rank %d's %s, of other chunks.", from,
				look_step_in_words(a, send, send_words, sizeof send_words), to,
				look_step_in_words(b, recv, recv_words, sizeof recv_words));
	}
	if (sent > received)
		return messages_alone(a, out - 1, received, f);
	return received > sent ? messages_alone(b, in - 1, sent, f) : true;
}

bool check_messages(const struct plan_set *set, struct finding *f)
{
	struct lane_map map;
	bool ok = true;

	lane_map_open(&map, set);
	for (int from = 0; from < set->size && ok; from++)
		for (int to = 0; to < set->size && ok; to++)
			ok = check_pair(set, &map, from, to, f);
	lane_map_close(&map);
	return ok;
}

/* See agreement_world.h. Checked all along: no two groups whose members all live have gone on, by
 * whichever questions; where nobody has died, or nobody but the dead is silent, no two living ranks
 * have decided differently; what is decided names dead only who has died, members only who has
 * begun, and their own records. */
#include "agreement_world.h"

#include "tests/random.h"

#include <assert.h>
#include <string.h>

static const uint8_t *record_of(const struct agreement *a, int rank)
{
	return a->value + a->size + (size_t)rank * a->record_bytes;
}

static int below(struct world *w, int n)
{
	return (int)(random_next(&w->random) % (uint64_t)n);
}

static bool is_listening(const struct world *w, int r)
{
	return w->is_begun[r] && w->is_alive[r] && !w->is_asleep[r] && !w->is_deaf[r];
}

static bool has_verdict(const struct world *w, int r)
{
	enum agreement_end end = world_outcome(w, r);
	return w->is_begun[r] && (end == AGREEMENT_DECIDED || end == AGREEMENT_LEFT_OUT);
}

/* ---- what must not be ------------------------------------------------------------------------ */

static void check_value(struct world *w, int rank)
{
	const struct agreement *a = &w->ranks[rank];

	for (int r = 0; r < w->size; r++) {
		if (a->value[r] == MARK_DEAD && w->is_alive[r])
			w->wrong = "a living rank is named as dead";
		if (a->value[r] != MARK_MEMBER)
			continue;
		if (!w->is_begun[r])
			w->wrong = "a member has not taken part";
		else if (memcmp(record_of(a, r), w->records[r], WORLD_RECORD) != 0)
			w->wrong = "a member has another's record";
	}
}

/* What r has decided on a question; NULL: nothing yet. */
static const uint8_t *decision(const struct world *w, int r, int number)
{
	if (number < w->number[r])
		return w->past[r][number];
	return number == w->number[r] && has_verdict(w, r) ? w->ranks[r].value : NULL;
}

/* A decision of ranks that have died since may be unknown to those who were silent then. */
static bool may_differ(const struct world *w)
{
	return w->anybody_died && (w->rules.cuts || w->rules.sleeps || w->rules.leaves ||
				   w->rules.jumps || w->rules.duels);
}

static void compare(struct world *w, int rank)
{
	const struct agreement *a = &w->ranks[rank];

	for (int r = 0; r < w->size; r++) {
		const uint8_t *theirs = decision(w, r, w->number[rank]);
		if (r == rank || !w->is_alive[r] || !theirs ||
		    memcmp(a->value, theirs, a->value_bytes) == 0)
			continue;
		w->differing++;
		if (!may_differ(w))
			w->wrong = "two living ranks have decided differently";
	}
}

static bool all_live(const struct world *w, unsigned group)
{
	for (int r = 0; r < w->size; r++)
		if ((group >> r & 1) && !w->is_alive[r])
			return false;
	return true;
}

static void check_groups(struct world *w, const uint8_t *value)
{
	unsigned group = 0;

	for (int r = 0; r < w->size; r++)
		group |= (unsigned)(value[r] == MARK_MEMBER) << r;
	w->went_on[group] = true;
	if (!all_live(w, group))
		return;
	for (unsigned other = 1; other < 1u << w->size; other++)
		if (w->went_on[other] && !(other & group) && all_live(w, other))
			w->wrong = "two groups go on whose members all live";
}

static void check(struct world *w, int rank)
{
	if (!has_verdict(w, rank))
		return;
	check_value(w, rank);
	compare(w, rank);
	check_groups(w, w->ranks[rank].value);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What was on its way is lost, and both ends know that. */
static void break_link(struct world *w, int a, int b)
{
	w->links[a][b].count = w->links[b][a].count = 0;
	if (a != b && is_listening(w, a))
		agreement_repeat(&w->ranks[a], b);
	if (a != b && is_listening(w, b))
		agreement_repeat(&w->ranks[b], a);
}

static void send(struct world *w, int from, int to, const struct agreement_message *m)
{
	struct world_link *l = &w->links[from][to];
	if (l->count == WORLD_QUEUE)
		break_link(w, from, to);
	struct world_message *copy = &l->queue[(l->first + l->count++) % WORLD_QUEUE];

	copy->m = *m;
	copy->number = w->number[from];
	if (m->record)
		copy->m.record = memcpy(copy->record, m->record, WORLD_RECORD);
	if (m->gone)
		copy->m.gone = memcpy(copy->gone, m->gone, (size_t)w->size);
	if (m->value)
		copy->m.value =
			memcpy(copy->value, m->value, agreement_value_bytes(w->size, WORLD_RECORD));
}

static void speak(struct world *w, int from)
{
	struct agreement_message m;
	for (int to = 0; to < w->size; to++)
		if (to != from && agreement_say(&w->ranks[from], to, &m, w->clocks_ns[from]))
			send(w, from, to, &m);
}

static void leave(struct world *w, int r)
{
	bool owes = false;

	for (int s = 0; s < w->size && w->rules.stays; s++)
		owes |= agreement_owes(&w->ranks[r], s);
	w->is_deaf[r] = !owes;
}

static void step(struct world *w, int r)
{
	if (!is_listening(w, r))
		return;
	agreement_step(&w->ranks[r], w->clocks_ns[r]);
	check(w, r);
	if (w->rules.stays && has_verdict(w, r))
		leave(w, r);
}

/* A rank that is further on says how it was decided; a rank that is not asks for that. */
static void answer_other(struct world *w, int from, int to, int number, enum agreement_kind kind)
{
	struct agreement_message ask = {.kind = AGREEMENT_ASK};
	struct agreement_message told = {.kind = AGREEMENT_DECIDE};

	if (number > w->number[to]) {
		if (world_outcome(w, to) == AGREEMENT_OPEN)
			send(w, to, from, &ask);
		return;
	}
	if (kind == AGREEMENT_DECIDE || kind == AGREEMENT_HOPELESS)
		return;
	int own = w->number[to];
	told.value = w->past[to][number];
	w->number[to] = number;
	send(w, to, from, &told);
	w->number[to] = own;
}

static void deliver(struct world *w, int from, int to)
{
	struct world_link *l = &w->links[from][to];

	if (l->count == 0 || l->is_cut || !is_listening(w, to))
		return;
	struct world_message m = l->queue[l->first];
	l->first = (l->first + 1) % WORLD_QUEUE;
	l->count--;
	/* The copy's own bytes have moved with it. */
	m.m.record = m.m.record ? m.record : NULL;
	m.m.value = m.m.value ? m.value : NULL;
	m.m.gone = m.m.gone ? m.gone : NULL;
	if (m.number != w->number[to]) {
		answer_other(w, from, to, m.number, m.m.kind);
		return;
	}
	agreement_hear(&w->ranks[to], from, &m.m, w->clocks_ns[to]);
	step(w, to);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin(struct world *w, int r)
{
	struct agreement_config config = {.rank = r,
					  .size = w->size,
					  .candidates = w->candidates,
					  .record = w->records[r],
					  .record_bytes = WORLD_RECORD,
					  .grace_ns = WORLD_GRACE,
					  .late_ns = w->rules.late_ns,
					  .now_ns = w->clocks_ns[r]};

	if (w->is_begun[r] || !w->is_alive[r] || w->is_absent[r])
		return;
	assert(agreement_init(&w->ranks[r], &config) == TUTTI_OK);
	w->is_begun[r] = true;
	step(w, r);
}

/* The next question: among the members of this one's group, who must be a majority of all that the
 * world began with. */
static void go_on(struct world *w, int r)
{
	struct agreement old = w->ranks[r];
	bool candidates[WORLD_RANKS];
	struct agreement_config config = {.rank = r,
					  .size = w->size,
					  .candidates = candidates,
					  .record = w->records[r],
					  .record_bytes = WORLD_RECORD,
					  .quorum = &old.quorum,
					  .grace_ns = WORLD_GRACE,
					  .late_ns = w->rules.late_ns,
					  .now_ns = w->clocks_ns[r]};

	if (!is_listening(w, r) || old.end != AGREEMENT_DECIDED || w->number[r] + 1 == w->questions)
		return;
	memcpy(w->past[r][w->number[r]++], old.value, old.value_bytes);
	for (int s = 0; s < w->size; s++)
		candidates[s] = old.value[s] == MARK_MEMBER;
	assert(agreement_init(&w->ranks[r], &config) == TUTTI_OK);
	agreement_finish(&old);
	step(w, r);
}

/* What a rank has said last may arrive, or a part of it, or nothing. */
static void crash(struct world *w, int r)
{
	w->is_alive[r] = false;
	w->anybody_died = true;
	for (int to = 0; to < w->size; to++) {
		struct world_link *l = &w->links[r][to];
		w->links[to][r].count = 0;
		if (l->count > 0)
			l->count = below(w, l->count + 1);
	}
}

static void prove(struct world *w, int dead, int to)
{
	if (dead == to || w->is_alive[dead] || !is_listening(w, to))
		return;
	agreement_mark_dead(&w->ranks[to], dead, w->clocks_ns[to]);
	step(w, to);
}

static void cut_world(struct world *w, uint64_t sides)
{
	for (int a = 0; a < w->size; a++)
		for (int b = 0; b < w->size; b++)
			w->links[a][b].is_cut = (sides >> a & 1) != (sides >> b & 1);
}

static void join_world(struct world *w)
{
	for (int a = 0; a < w->size; a++)
		for (int b = 0; b < w->size; b++)
			w->links[a][b].is_cut = false;
}

static void rare_event(struct world *w)
{
	int r = below(w, w->size), s = below(w, w->size);

	switch (below(w, 6)) {
	case 0:
		if (w->rules.crashes && below(w, 4) == 0)
			crash(w, r);
		break;
	case 1:
		if (w->rules.breaks)
			break_link(w, r, s);
		break;
	case 2:
		if (w->rules.cuts)
			cut_world(w, random_next(&w->random));
		break;
	case 3:
		join_world(w);
		break;
	case 4:
		if (w->rules.sleeps)
			w->is_asleep[r] = !w->is_asleep[r];
		break;
	default:
		if (w->rules.leaves && has_verdict(w, r))
			leave(w, r);
		break;
	}
}

/* One of the messages that wait. */
static void deliver_some(struct world *w)
{
	int at = below(w, WORLD_RANKS * WORLD_RANKS);

	for (int i = 0; i < WORLD_RANKS * WORLD_RANKS; i++, at++) {
		int from = at / WORLD_RANKS % WORLD_RANKS, to = at % WORLD_RANKS;
		if (w->links[from][to].count > 0 && !w->links[from][to].is_cut &&
		    is_listening(w, to)) {
			deliver(w, from, to);
			return;
		}
	}
}

static void event(struct world *w)
{
	int r = below(w, w->size), s = below(w, w->size);

	switch (below(w, 16)) {
	case 0:
		rare_event(w);
		break;
	case 1:
		if (w->rules.duels)
			w->clocks_ns[r] += WORLD_GRACE;
		begin(w, r);
		break;
	case 2:
		prove(w, r, s);
		break;
	case 3:
		w->clocks_ns[r] += (uint64_t)below(w, w->rules.jumps ? 2 * (int)WORLD_GRACE
								     : (int)WORLD_GRACE / 1000);
		break;
	case 4:
		step(w, r);
		if (below(w, 4) == 0)
			go_on(w, r);
		break;
	case 5:
	case 6:
	case 7:
		if (is_listening(w, r))
			speak(w, r);
		break;
	default:
		deliver_some(w);
		break;
	}
}

void world_begin(struct world *w, int size, uint64_t seed, struct world_rules rules)
{
	memset(w, 0, sizeof *w);
	w->size = size;
	w->questions = 1;
	w->random = seed;
	w->rules = rules;
	for (int r = 0; r < size; r++) {
		w->clocks_ns[r] = 1000;
		w->is_alive[r] = true;
		w->candidates[r] = true;
		for (int i = 0; i < WORLD_RECORD; i++)
			w->records[r][i] = (uint8_t)(r * 16 + i);
	}
	for (int r = 0; rules.duels && r < size; r++)
		begin(w, r);
}

void world_run(struct world *w, int events)
{
	for (int i = 0; i < events && !w->wrong; i++)
		event(w);
}

static bool has_ended(const struct world *w, int r)
{
	if (!w->is_alive[r] || w->is_absent[r] || w->is_deaf[r])
		return true;
	if (!w->is_begun[r] || world_outcome(w, r) == AGREEMENT_OPEN)
		return false;
	return world_outcome(w, r) != AGREEMENT_DECIDED || w->number[r] + 1 == w->questions;
}

static bool all_ended(const struct world *w)
{
	for (int r = 0; r < w->size; r++)
		if (!has_ended(w, r))
			return false;
	return true;
}

void world_settle(struct world *w, int rounds)
{
	for (int r = 0; r < w->size; r++)
		begin(w, r);
	for (int round = 0; round < rounds && !w->wrong && !all_ended(w); round++) {
		for (int r = 0; r < w->size; r++) {
			w->clocks_ns[r] += WORLD_GRACE / 100;
			for (int s = 0; s < w->size; s++) {
				prove(w, r, s);
				while (w->links[r][s].count > 0 && !w->links[r][s].is_cut &&
				       is_listening(w, s))
					deliver(w, r, s);
				if (!is_listening(w, s) || w->links[r][s].is_cut)
					w->links[r][s].count = 0;
			}
			step(w, r);
			if (is_listening(w, r))
				speak(w, r);
			if (round % 8 == r)
				go_on(w, r);
		}
	}
}

void world_reconnect(struct world *w)
{
	join_world(w);
	memset(w->is_asleep, 0, sizeof w->is_asleep);
	world_settle(w, 20000);
	if (!w->wrong && !all_ended(w))
		w->wrong = "a living rank has no verdict, although nothing hinders it";
}

void world_tear(struct world *w)
{
	int change = below(w, 4);
	bool sleep = below(w, 2);

	if (w->sides == 0 || change == 0)
		w->sides = random_next(&w->random);
	else if (change == 1)
		w->sides = ~w->sides;
	cut_world(w, sleep ? 0 : w->sides);
	for (int r = 0; r < w->size; r++) {
		w->is_asleep[r] = sleep && (w->sides >> r & 1);
		if (w->is_alive[r] && below(w, 8) == 0)
			crash(w, r);
	}
}

void world_end(struct world *w)
{
	for (int r = 0; r < w->size; r++)
		if (w->is_begun[r])
			agreement_finish(&w->ranks[r]);
}

/* From a seed to a scenario. The order in which numbers are drawn is what a seed means: a change of
 * it changes all seeds. */
#include "tests/faults/scenario.h"

#include "tests/api/api.h"

#include <stdio.h>
#include <string.h>

/* Sanitizers and the machines that run them are slow; what is waited for, is waited for longer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWDOWN 2
#else
#define SLOWDOWN 1
#endif
#define TIMEOUT_MS      (5000 * SLOWDOWN)
#define SILENCE_MS      (1500 * SLOWDOWN)
#define LATE_SILENCE_MS 60000 /* KIND_LATE */
#define FABRIC_RANKS    5

const char *const way_names[WAYS] = {"window", "shm",   "tcp", "nodes",
				     "hosts",  "verbs", "ucx", "gpus"};
const char *const kind_names[KINDS] = {"kill", "stop", "nap", "abort",  "close", "reset",
				       "loss", "flap", "cut", "vanish", "late"};
const char *const point_names[POINTS] = {"init",   "call",    "split", "agree",
					 "shrink", "destroy", "grow"};

int name_find(const char *const *names, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

static uint32_t below(uint64_t *random, uint32_t n)
{
	return (uint32_t)random_below(random, n);
}

/* The chance of one in all that are possible. What not every machine has is left to those who ask
 * for it: a seed means the same everywhere. */
static const int way_weights[WAYS] = {3, 3, 5, 4, 6, 0, 0};
static const int kind_weights[KINDS] = {8, 3, 2, 2, 3, 4, 2, 3, 2, 2, 3};
/* Grow only where it is asked for by name: what it has found is not repaired yet
 * (docs/reliability.md). */
static const int point_weights[POINTS] = {2, 6, 2, 2, 3, 2, 3};

static int draw_weighted(uint64_t *random, const int *weights, int count)
{
	int sum = 0, at = 0;

	for (int i = 0; i < count; i++)
		sum += weights[i];
	for (int left = (int)below(random, (uint32_t)sum); left >= weights[at]; at++)
		left -= weights[at];
	return at;
}

static bool fits(int way, int kind)
{
	bool is_of_network =
		kind == KIND_LOSS || kind == KIND_FLAP || kind == KIND_CUT || kind == KIND_VANISH;

	if (is_of_network)
		return way == WAY_HOSTS;
	if (kind == KIND_RESET)
		return way != WAY_WINDOW && way != WAY_GPUS && way != WAY_SHM;
	return kind != KIND_CLOSE || (way != WAY_WINDOW && way != WAY_GPUS);
}

/* Where new ranks look for the others, a rank has to be left: a host may have none. */
static bool can_hit_grow(int kind)
{
	return kind == KIND_KILL || kind == KIND_STOP || kind == KIND_NAP || kind == KIND_CLOSE ||
	       kind == KIND_RESET;
}

static bool fits_grow(int way, int kind)
{
	return way != WAY_HOSTS && can_hit_grow(kind);
}

bool scenario_is_possible(const struct wish *wish)
{
	bool is_possible = wish->point != POINT_GROW ||
			   (wish->way != WAY_HOSTS && (wish->kind < 0 || can_hit_grow(wish->kind)));

	return is_possible && (wish->way < 0 || wish->kind < 0 || fits(wish->way, wish->kind));
}

int scenario_seats(const struct scenario *s)
{
	return s->ranks + s->grows;
}

int scenario_host(const struct scenario *s, int rank)
{
	return rank * s->hosts / s->ranks;
}

uint32_t scenario_ranks_of(const struct scenario *s, int host)
{
	uint32_t ranks = 0;

	for (int r = 0; r < s->ranks; r++)
		if (scenario_host(s, r) == host)
			ranks |= 1u << r;
	return ranks;
}

const struct fault *scenario_fault(const struct scenario *s)
{
	return &s->faults[s->fault_count - 1];
}

/* ---- who it happens to ----------------------------------------------------------------------- */

/* Mostly one; never all. */
static uint32_t draw_victims(const struct scenario *s, uint64_t *random, uint32_t others)
{
	int count = below(random, 3) ? 1 : 1 + (int)below(random, (uint32_t)s->ranks - 1);
	bool takes_lowest = below(random, 3) == 0;
	uint32_t victims = takes_lowest && !(others & 1) ? 1 : 0;
	uint32_t spared = 1u << below(random, (uint32_t)s->ranks);

	if (victims == spared || (others | victims) == spared)
		spared = 0;
	for (int i = 0; i < count; i++)
		victims |= 1u << below(random, (uint32_t)s->ranks);
	victims &= ~(others | spared);
	for (int r = s->ranks - 1; r >= 0 && victims == 0; r--)
		if (!((others | spared) & 1u << r))
			victims = 1u << r;
	while ((victims | others) == (1u << s->ranks) - 1)
		victims &= victims - 1;
	return victims;
}

static uint32_t draw_one(const struct scenario *s, uint64_t *random, uint32_t others)
{
	uint32_t one;

	do
		one = 1u << below(random, (uint32_t)s->ranks);
	while (one & others);
	return one;
}

static uint32_t draw_side(const struct scenario *s, uint64_t *random)
{
	uint32_t hosts = 1 + below(random, (1u << s->hosts) - 2), side = 0;

	for (int h = 0; h < s->hosts; h++)
		if (hosts & 1u << h)
			side |= scenario_ranks_of(s, h);
	return side;
}

/* ---- when ------------------------------------------------------------------------------------ */

static void draw_times(const struct scenario *s, struct fault *f, uint64_t *random)
{
	bool is_at_once = below(random, 3) == 0;
	uint64_t most = UINT64_C(50000) << below(random, 9); /* 50 us to 13 ms */

	if (f->point == POINT_INIT || f->point == POINT_GROW)
		most = UINT64_C(1000000) << below(random, 6); /* 1 to 32 ms */
	for (int r = 0; r < scenario_seats(s); r++)
		f->after_ns[r] = is_at_once ? 0 : random_below(random, most);
	f->segment = (int)below(random, (uint32_t)s->segments);
	f->step = (int)below(random, (uint32_t)s->steps);
	f->trigger = (int)below(random, (uint32_t)s->ranks);
	f->holds = below(random, 2) && f->point != POINT_INIT; /* the others wait for it there */
	f->wakes_late = below(random, 3) == 0;
}

static void draw_fault(const struct scenario *s, struct fault *f, uint64_t *random, uint32_t others)
{
	draw_times(s, f, random);
	while (others & 1u << f->trigger)
		f->trigger = (f->trigger + 1) % s->ranks;
	switch (f->kind) {
	case KIND_KILL:
	case KIND_STOP:
	case KIND_LATE:
		f->victims = draw_victims(s, random, others);
		break;
	case KIND_NAP:
	case KIND_ABORT:
		f->victims = draw_one(s, random, others);
		break;
	case KIND_CUT:
		f->victims = draw_side(s, random);
		break;
	case KIND_VANISH:
	case KIND_FLAP:
		f->victims = scenario_ranks_of(s, (int)below(random, (uint32_t)s->hosts));
		break;
	default:
		break;
	}
	/* A nap ends, and a link is up again, long before anybody may call it silence, also where
	 * tcp waits twice as long each time before it tries again. */
	f->lasts_ms = 20 + below(random, SILENCE_MS / 5);
	f->loss_permille = 1 + (int)below(random, 30);
	f->delay_us = (int)below(random, 10000);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* An emulated machine (tests/verbs/guest) takes seconds to connect a few ranks by verbs; beside a
 * load of 20 to 50, of which its own /proc/loadavg says nothing, it takes two minutes and more. UCX
 * takes 10 ms of a core for each connection. Few kinds wait for a deadline: the others may have a
 * long one. */
static void slow_down(struct scenario *s, enum kind kind)
{
	int factor = s->way == WAY_VERBS && !is_long_stop(kind) ? 60 : 3;

	s->ranks = s->ranks < FABRIC_RANKS ? s->ranks : FABRIC_RANKS;
	s->timeout_ms *= factor;
	s->silence_ms *= factor;
}

static void draw_job(struct scenario *s, uint64_t *random)
{
	bool is_spread = s->way == WAY_NODES || s->way == WAY_HOSTS;

	s->ranks = 3 + (int)below(random, RANKS_MOST - 2);
	s->hosts = is_spread ? 2 + (int)below(random, s->ranks < 6 ? 1 : 2) : 1;
	s->agrees = below(random, 2);
	s->has_memory = below(random, 3) == 0;
	s->segments = 1 + (int)below(random, SEGMENTS_MOST);
	s->steps = 3 + (int)below(random, 4);
	s->is_summed = below(random, 4) == 0 && s->way != WAY_UCX; /* which cannot */
	s->timeout_ms = TIMEOUT_MS;
	s->silence_ms = SILENCE_MS;
}

/* The shrink loses a rank more. */
static void draw_late(struct scenario *s, int point, uint64_t *random)
{
	if (below(random, 4) == 0 && point != POINT_SHRINK)
		s->ranks = 2;
	s->hosts = s->hosts < s->ranks ? s->hosts : s->ranks;
	s->silence_ms = LATE_SILENCE_MS;
}

/* A new rank has the fault instead, as well, or not. */
static void draw_joiner(const struct scenario *s, struct fault *f, uint64_t *random)
{
	uint32_t chance = below(random, 4);

	if (chance == 0)
		f->victims = 0;
	if (chance == 0 || (chance == 1 && f->kind != KIND_NAP))
		f->victims |= 1u << s->ranks;
}

void scenario_draw(struct scenario *s, uint64_t seed, const struct wish *wish)
{
	uint64_t random = seed * 7919 + 17;
	int kind, point;

	*s = (struct scenario){.seed = seed, .reconnect = wish->reconnect};
	do {
		s->way = (enum way)draw_weighted(&random, way_weights, WAYS);
		kind = draw_weighted(&random, kind_weights, KINDS);
		point = draw_weighted(&random, point_weights, POINTS);
		if (wish->way >= 0)
			s->way = (enum way)wish->way;
		if (wish->kind >= 0)
			kind = wish->kind;
		if (wish->point >= 0)
			point = wish->point;
	} while (!fits((int)s->way, kind) ||
		 (point == POINT_GROW && !fits_grow((int)s->way, kind)));
	draw_job(s, &random);
	if (s->way == WAY_VERBS || s->way == WAY_UCX)
		slow_down(s, (enum kind)kind);
	if (kind == KIND_LATE)
		draw_late(s, point, &random);
	if (point == POINT_GROW) {
		s->grows = true;
		s->ranks = s->ranks < RANKS_MOST ? s->ranks : RANKS_MOST - 1;
		s->has_memory = false;
	}
	if (point == POINT_AGREE)
		s->agrees = true;
	if (point == POINT_SHRINK || point == POINT_GROW) {
		struct fault *first = &s->faults[s->fault_count++];
		*first = (struct fault){.kind = KIND_KILL, .point = POINT_CALL};
		draw_times(s, first, &random);
		first->victims = draw_one(s, &random, 0);
	}
	struct fault *f = &s->faults[s->fault_count++];
	*f = (struct fault){.kind = (enum kind)kind, .point = (enum point)point};
	draw_fault(s, f, &random, s->fault_count > 1 ? s->faults[0].victims : 0);
	if (s->grows && f->victims)
		draw_joiner(s, f, &random);
}

static size_t put_ranks(char *text, size_t bytes, uint32_t ranks)
{
	size_t at = 0;

	for (int r = 0; r < RANKS_MOST; r++)
		if (ranks & 1u << r)
			at += (size_t)snprintf(text + at, bytes - at, "%s%d", at ? "," : "", r);
	return at;
}

static bool has_victims(enum kind kind)
{
	return kind != KIND_CLOSE && kind != KIND_RESET && kind != KIND_LOSS;
}

const char *scenario_words(const struct scenario *s, char *text)
{
	size_t bytes = SCENARIO_TEXT;
	size_t at = (size_t)snprintf(text, bytes, "%d ranks, %s", s->ranks, way_names[s->way]);

	if (s->hosts > 1)
		at += (size_t)snprintf(text + at, bytes - at, " (%d)", s->hosts);
	at += (size_t)snprintf(text + at, bytes - at, "%s%s%s:", s->agrees ? ", agree" : "",
			       s->has_memory ? ", memory" : "", s->is_summed ? ", checksums" : "");
	for (int i = 0; i < s->fault_count; i++) {
		const struct fault *f = &s->faults[i];
		at += (size_t)snprintf(text + at, bytes - at, "%s %s", i ? ", then" : "",
				       kind_names[f->kind]);
		if (has_victims(f->kind)) {
			at += (size_t)snprintf(text + at, bytes - at, " of ");
			at += put_ranks(text + at, bytes - at, f->victims);
		}
		at += (size_t)snprintf(text + at, bytes - at, " in %s", point_names[f->point]);
		if (f->point == POINT_CALL || f->point == POINT_SPLIT || f->point == POINT_AGREE)
			at += (size_t)snprintf(text + at, bytes - at, " %d.%d", f->segment,
					       f->step);
	}
	return text;
}

/* tutti-plan check: messages match, nothing races, and every step ends. */
#include "check.h"

#include "arguments.h"

#include "tools/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

/* Writes the message and returns false. */
__attribute__((format(printf, 2, 3))) static bool check_finds(struct finding *f, const char *format,
							      ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->text, sizeof f->text, format, args);
	va_end(args);
	return false;
}

/* Messages match by position: the k-th that a rank sends to a peer is the k-th that the peer
 * receives from it. So both must count alike, and be equally long. */

static bool check_is_as_long(const struct plan_set *set, const struct plan *a, uint32_t send,
			     const struct plan *b, uint32_t recv)
{
	struct refs from = look_message(a, send), to = look_message(b, recv);
	/* Of all_to_all a block has one number at its sender and another at its receiver. */
	bool has_common_shapes = set->algorithm->collective != COLL_ALL_TO_ALL;

	if (from.n != to.n)
		return false;
	for (uint32_t i = 0; i < from.n && has_common_shapes; i++)
		if (plan_shape_of(a, from.at[i]) != plan_shape_of(b, to.at[i]))
			return false;
	return true;
}

static uint32_t check_step_at(const struct plan *p, uint32_t lane, uint32_t k)
{
	return p->order[p->lanes[lane].first + k];
}

static uint32_t check_lane(const struct plan *p, bool sends, int peer)
{
	for (uint32_t l = 0; l < p->lane_count; l++)
		if (p->lanes[l].peer == peer && p->lanes[l].sends == sends)
			return l;
	return NONE;
}

/* The k-th message is the last of one end only. */
static bool check_message_alone(const struct plan *p, uint32_t lane, uint32_t k, struct finding *f)
{
	uint32_t step = check_step_at(p, lane, k);
	struct look_step_text words = look_step_in_words(p, step);

	if (p->lanes[lane].sends)
		return check_finds(f, "Rank %d: %s is message %u to rank %d, which receives %u.",
				   p->rank, words.text, k + 1, p->steps[step].peer, k);
	return check_finds(f, "Rank %d: %s waits for message %u of rank %d, which sends %u.",
			   p->rank, words.text, k + 1, p->steps[step].peer, k);
}

/* The messages of a lane that sends; lane in of their receiver b, NONE: it has none. */
static bool check_pair(const struct plan_set *set, const struct plan *a, uint32_t out,
		       const struct plan *b, uint32_t in, struct finding *f)
{
	uint32_t sent = a->lanes[out].count, received = in == NONE ? 0 : b->lanes[in].count;

	for (uint32_t k = 0; k < sent && k < received; k++) {
		uint32_t send = check_step_at(a, out, k), recv = check_step_at(b, in, k);
		if (!check_is_as_long(set, a, send, b, recv))
			return check_finds(f, "Rank %d: %s meets rank %d's %s, of other chunks.",
					   a->rank, look_step_in_words(a, send).text, b->rank,
					   look_step_in_words(b, recv).text);
	}
	if (sent > received)
		return check_message_alone(a, out, received, f);
	return received > sent ? check_message_alone(b, in, sent, f) : true;
}

static bool check_messages(const struct plan_set *set, const struct plan *p, struct finding *f)
{
	for (uint32_t l = 0; l < p->lane_count; l++) {
		const struct lane *lane = &p->lanes[l];
		if (lane->peer < 0)
			continue;
		const struct plan *peer = set->of[lane->peer];
		uint32_t other = check_lane(peer, !lane->sends, p->rank);
		if (lane->sends ? !check_pair(set, p, l, peer, other, f)
				: other == NONE && !check_message_alone(p, l, 0, f))
			return false;
	}
	return true;
}

/* Steps that touch the same memory, at least one of them writing, must wait for each other in
 * the order of the program: read after write, write after read, write after write. Otherwise what a
 * plan does depends on when messages arrive. The edges needed are found anew here, with in place's
 * overlaps, and compared. */

/* Steps that have read a cell since it was written, as lists. */
struct reader {
	uint32_t step, next;
};

struct history {
	const struct plan *plan;
	bool in_place;
	uint32_t *writer, *readers; /* by cell: a step; the head of a list                     */
	struct reader *reader;
	size_t count, room;
	struct before before;
	bool *seen; /* by step: found already, in one search                        */
	uint32_t *todo;
};

/* Does step wait for from, directly or not? */
static bool check_leads_to(struct history *h, uint32_t from, uint32_t step)
{
	uint32_t n = 0;
	h->todo[n++] = step;
	while (n) {
		uint32_t at = h->todo[--n];
		for (uint32_t i = h->before.first[at]; i < h->before.first[at + 1]; i++) {
			uint32_t earlier = h->before.at[i];
			if (earlier == from)
				return true;
			if (earlier < from || h->seen[earlier])
				continue;
			h->seen[earlier] = true;
			h->todo[n++] = earlier;
		}
	}
	return false;
}

static bool check_is_direct(const struct history *h, uint32_t from, uint32_t step)
{
	for (uint32_t i = h->before.first[step]; i < h->before.first[step + 1]; i++)
		if (h->before.at[i] == from)
			return true;
	return false;
}

static bool check_waits(struct history *h, uint32_t from, uint32_t step)
{
	if (from == NONE || from == step || check_is_direct(h, from, step))
		return true;
	memset(h->seen, 0, h->plan->count * sizeof *h->seen);
	return check_leads_to(h, from, step);
}

static bool check_race(const struct history *h, uint32_t from, uint32_t step, struct ref r,
		       struct finding *f)
{
	return check_finds(f, "Rank %d: %s does not wait for %s, though both use %s.",
			   h->plan->rank, look_step_in_words(h->plan, step).text,
			   look_step_in_words(h->plan, from).text,
			   look_refs_in_words((struct refs){&r, 1}).text);
}

static bool check_read(struct history *h, uint32_t step, struct ref r, struct finding *f)
{
	uint32_t cell = look_cell(h->plan, r, h->in_place);

	if (!check_waits(h, h->writer[cell], step))
		return check_race(h, h->writer[cell], step, r, f);
	h->reader = must_grow(h->reader, h->count, &h->room, sizeof *h->reader);
	h->reader[h->count] = (struct reader){step, h->readers[cell]};
	h->readers[cell] = (uint32_t)h->count++;
	return true;
}

static bool check_write(struct history *h, uint32_t step, struct ref r, struct finding *f)
{
	uint32_t cell = look_cell(h->plan, r, h->in_place);

	for (uint32_t i = h->readers[cell]; i != NONE; i = h->reader[i].next)
		if (!check_waits(h, h->reader[i].step, step))
			return check_race(h, h->reader[i].step, step, r, f);
	if (h->readers[cell] == NONE && !check_waits(h, h->writer[cell], step))
		return check_race(h, h->writer[cell], step, r, f);
	h->writer[cell] = step;
	h->readers[cell] = NONE;
	return true;
}

static bool check_steps(struct history *h, struct finding *f)
{
	for (uint32_t s = 0; s < h->plan->count; s++) {
		struct refs in = look_reads(h->plan, s), out = look_writes(h->plan, s);
		for (uint32_t i = 0; i < in.n; i++)
			if (!check_read(h, s, in.at[i], f))
				return false;
		for (uint32_t i = 0; i < out.n; i++)
			if (!check_write(h, s, out.at[i], f))
				return false;
	}
	return true;
}

static bool check_order(const struct plan *p, bool in_place, struct finding *f)
{
	uint32_t cells = look_cells(p);
	struct history h = {.plan = p,
			    .in_place = in_place,
			    .writer = must_alloc(cells, sizeof(uint32_t)),
			    .readers = must_alloc(cells, sizeof(uint32_t)),
			    .seen = must_alloc(p->count, sizeof(bool)),
			    .todo = must_alloc(p->count + 1, sizeof(uint32_t)),
			    .before = look_before(p)};
	for (uint32_t c = 0; c < cells; c++)
		h.writer[c] = h.readers[c] = NONE;
	bool ok = check_steps(&h, f);
	look_before_free(&h.before);
	free(h.writer);
	free(h.readers);
	free(h.reader);
	free(h.seen);
	free(h.todo);
	return ok;
}

/* Every step ends, also where a send waits for its receive. */

static bool check_end(const struct plan_set *set, struct finding *f)
{
	struct machine machine = {.links = links_default(), .element = 1, .rendezvous = true};
	struct world world;

	if (!world_open(&world, set, SIZE_MAX, true))
		return check_finds(f, "There are too many steps to run them.");
	struct run_time time = clock_run(&world, &machine, (struct slices){1, 1, 1});
	world_close(&world);
	if (time.stuck < 0)
		return true;
	return check_finds(f, "Rank %d: %s never ends when sends wait for their receives.",
			   time.stuck,
			   look_step_in_words(set->of[time.stuck], time.stuck_step).text);
}

bool check_plans(const struct plan_set *set, struct finding *f)
{
	for (int r = 0; r < set->size; r++)
		if (!check_messages(set, set->of[r], f) ||
		    !check_order(set->of[r], set->in_place, f))
			return false;
	return check_end(set, f);
}

/* The calls to check, one after the other. */

static bool check_has_in_place(enum collective c)
{
	return c != COLL_ALL_TO_ALL && c != COLL_BARRIER;
}

static bool check_set(struct cases *c, struct plan_set *set, struct finding *f)
{
	look_build_all(set);
	bool ok = check_plans(set, f);
	look_free_all(set);
	c->checked++;
	c->last = *set;
	return ok;
}

/* Where the ranks are. */
struct layer {
	int nodes;
	bool in_turn;
};

static bool check_options(struct cases *c, int root, struct layer where, struct finding *f)
{
	bool reduces = collective_reduces(c->algorithm->collective);
	for (int how = 0; how < (c->thorough ? 8 : 1); how++) {
		struct plan_set set = {.algorithm = c->algorithm,
				       .size = c->size,
				       .nodes = where.nodes,
				       .in_turn = where.in_turn,
				       .root = root,
				       .in_place = how & 1,
				       .options = {.staged = how & 2, .scaled = how & 4}};
		if ((set.in_place && !check_has_in_place(c->algorithm->collective)) ||
		    (set.options.scaled && !reduces))
			continue;
		if (!check_set(c, &set, f))
			return false;
	}
	return true;
}

/* The first, the last and one between see all that renumbering may break. */
static bool check_roots(struct cases *c, struct layer where, struct finding *f)
{
	int roots[3] = {0, c->size - 1, c->size / 2};
	int n = !collective_has_root(c->algorithm->collective) ? 1 : c->size < 3 ? c->size : 3;

	if (look_why_not(c->algorithm, c->size, where.nodes))
		return true;
	if (c->root >= 0)
		return check_options(c, c->root, where, f);
	for (int i = 0; i < n; i++)
		if (!check_options(c, roots[i], where, f))
			return false;
	return true;
}

bool check_cases(struct cases *c, struct finding *f)
{
	bool looks_at_nodes = c->algorithm->needs & NEEDS_NODES;
	int first = c->nodes ? c->nodes : looks_at_nodes ? 2 : 1;
	int last = c->nodes ? c->nodes : looks_at_nodes ? c->size / 2 : 1;

	/* Of many ranks few nodes and small ones. */
	for (int nodes = first; nodes <= last; nodes++) {
		if (c->size > 16 && nodes > 3 && c->size / nodes > 3)
			continue;
		for (int in_turn = 0; in_turn < (looks_at_nodes ? 2 : 1); in_turn++)
			if (c->size % nodes == 0 &&
			    !check_roots(c, (struct layer){nodes, in_turn}, f))
				return false;
	}
	return true;
}

static void check_describe(const struct plan_set *set)
{
	printf("%s %s, %d ranks", collective_name(set->algorithm->collective), set->algorithm->name,
	       set->size);
	if (set->nodes > 1)
		printf(" on %d nodes%s", set->nodes, set->in_turn ? " in turn" : "");
	if (set->root)
		printf(", root %d", set->root);
	printf("%s%s%s", set->in_place ? ", in place" : "", set->options.staged ? ", staged" : "",
	       set->options.scaled ? ", scaled" : "");
}

/* False: a plan is wrong, and it was said. */
static bool check_size(const struct arguments *a, const struct algorithm *algorithm, int size,
		       int *checked)
{
	struct finding finding;
	struct cases cases = {.algorithm = algorithm,
			      .size = size,
			      .root = a->root,
			      .nodes = a->nodes,
			      .thorough = size <= 64};

	bool ok = check_cases(&cases, &finding);
	*checked += cases.checked;
	if (ok)
		return true;
	check_describe(&cases.last);
	printf(":\n  %s\n", finding.text);
	return false;
}

static bool check_algorithm(const struct arguments *a, const struct algorithm *algorithm)
{
	static const struct rank_range usual[] = {{1, 17}, {31, 33}, {64, 64}};
	const struct rank_range *ranges = a->ranks.count ? a->ranks.of : usual;
	int n = a->ranks.count ? a->ranks.count : 3, checked = 0;

	for (int i = 0; i < n; i++)
		for (int size = ranges[i].first; size <= ranges[i].last; size++)
			if (!check_size(a, algorithm, size, &checked))
				return false;
	printf("%s %s: %d call%s checked, nothing wrong%s\n",
	       collective_name(algorithm->collective), algorithm->name, checked,
	       checked == 1 ? "" : "s", checked ? "" : "; it is not for so many ranks");
	return true;
}

int plan_check(const struct arguments *a)
{
	bool ok = true;

	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *algorithm = algorithm_at(i);
		if (!algorithm->build || (a->algorithm && algorithm != a->algorithm) ||
		    (a->collective != COLL_COUNT && algorithm->collective != a->collective))
			continue;
		ok &= check_algorithm(a, algorithm);
	}
	return ok ? 0 : 1;
}

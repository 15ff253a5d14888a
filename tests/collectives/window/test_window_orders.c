/* slow: 5 s */
/* no_asan: one thread that computes for long in plain arrays */
/* no_tsan: it has one thread */
/* Would break: the order in which ranks of a window post and look: whichever of them goes on next,
 * at every point, all results are right and nobody waits for ever. Not drawn from a seed: all
 * orders.
 *
 * One thread plays the ranks with the window's own functions. A move takes one rank to its next
 * post (a line's or a word's release store) and no further: what it reads and writes before that
 * post may as well happen at once, since the others' posts only add to what each of them may do; if
 * somebody can write what this rank still reads, there is an order of whole moves in which that is
 * written before. After every move the state is hashed: the shared memory, the windows, the runs
 * and the callers' buffers. One that was seen before leads nowhere new. A call that is done has its
 * result looked at, and its caller writes over all its buffers.
 *
 * WINDOW_ORDERS=long (script/soak) plays longer programs. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "core/status.h"

#include <limits.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX   3
#define CALLS_MAX   40
#define REGIONS_MAX 48
#define DEPTH_MAX   1000
#define TABLE_BITS  23         /* of states seen, in 64 MiB */
#define STATES_MAX  (1u << 22) /* of one program; half of the table */
#define PIECES      5          /* of a long call: every slot is used again */

enum where { IN_ORDINARY, IN_SHARED }; /* memory */

struct play_call {
	enum collective collective;
	size_t bytes; /* as the API counts; bytes are the elements */
	int root;
	enum where where;
};

struct program {
	int size, calls;
	struct play_call call[CALLS_MAX];
};

struct actor {
	struct window_run run;
	int next; /* the call it makes next, or is in */
	bool is_busy;
};

struct region {
	void *at;
	size_t bytes;
};

struct play {
	const struct program *program;
	struct window *windows[RANKS_MAX];
	struct actor actors[RANKS_MAX];
	uint8_t *buffers[2][RANKS_MAX]; /* by where; each rank's, of all its calls */
	size_t buffer_bytes;
	size_t at[2][CALLS_MAX]; /* by side: where in them */
	struct region regions[REGIONS_MAX];
	int region_count;
	size_t state_bytes;
	uint8_t *stack;
	uint32_t states, moves, ends;
};

static uint64_t *table; /* of hashes, by their low bits; 0: none */
static size_t table_used;
static uint64_t all_states, all_moves, all_programs;

static size_t blocks_of(const struct play_call *c, int size, int rank, int side)
{
	bool is_root = rank == c->root, sends = side == SEND_SIDE;

	switch (c->collective) {
	case COLL_BARRIER:
		return 0;
	case COLL_ALL_TO_ALL:
		return (size_t)size;
	case COLL_REDUCE_SCATTER:
		return sends ? (size_t)size : 1;
	case COLL_ALL_GATHER:
		return sends ? 1 : (size_t)size;
	case COLL_SCATTER:
		return sends ? (is_root ? (size_t)size : 0) : 1;
	case COLL_GATHER:
		return sends ? 1 : is_root ? (size_t)size : 0;
	case COLL_REDUCE:
		return sends || is_root;
	default:
		return 1;
	}
}

static uint8_t sent(int call, int rank, size_t block, size_t i)
{
	return (uint8_t)team_random((uint64_t)call + 1, (uint64_t)rank, block << 32 | i);
}

static uint8_t sum(const struct program *p, int call, size_t block, size_t i)
{
	uint8_t all = 0;

	for (int rank = 0; rank < p->size; rank++)
		all = (uint8_t)(all + sent(call, rank, block, i));
	return all;
}

/* Byte i of a block that rank receives. */
static uint8_t expected(const struct program *p, int call, int rank, size_t block, size_t i)
{
	const struct play_call *c = &p->call[call];

	switch (c->collective) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return sum(p, call, 0, i);
	case COLL_REDUCE_SCATTER:
		return sum(p, call, (size_t)rank, i);
	case COLL_BROADCAST:
		return sent(call, c->root, 0, i);
	case COLL_SCATTER:
		return sent(call, c->root, (size_t)rank, i);
	case COLL_ALL_TO_ALL:
		return sent(call, (int)block, (size_t)rank, i);
	default:
		return sent(call, (int)block, 0, i);
	}
}

static void add_region(struct play *p, void *at, size_t bytes)
{
	assert_true(p->region_count < REGIONS_MAX);
	p->regions[p->region_count++] = (struct region){at, bytes};
	p->state_bytes += bytes;
}

static void add_window(struct play *p, struct window *w)
{
	size_t n = (size_t)w->size;

	add_region(p, w, sizeof *w);
	for (int word = 0; word < WORDS; word++)
		add_region(p, w->seen[word], n * sizeof *w->seen[word]);
	add_region(p, w->scratch.src, n * sizeof *w->scratch.src);
	add_region(p, w->scratch.dst, n * sizeof *w->scratch.dst);
	add_region(p, w->scratch.peer_send, n * sizeof *w->scratch.peer_send);
	add_region(p, w->scratch.peer_recv, n * sizeof *w->scratch.peer_recv);
	add_region(p, w->scratch.deals, n * sizeof *w->scratch.deals);
}

static uint64_t hash_of(const struct play *p)
{
	uint64_t h = 1 + all_programs, word;

	for (int r = 0; r < p->region_count; r++) {
		const uint8_t *at = p->regions[r].at;
		for (size_t i = 0; i < p->regions[r].bytes; i += sizeof word) {
			size_t left = p->regions[r].bytes - i;
			word = 0;
			memcpy(&word, at + i, left < sizeof word ? left : sizeof word);
			h = (h ^ word) * 0x9e3779b97f4a7c15u;
			h ^= h >> 29;
		}
	}
	return h ? h : 1;
}

/* False: it was there. */
static bool remember(uint64_t hash)
{
	size_t mask = ((size_t)1 << TABLE_BITS) - 1, at = hash & mask;

	while (table[at] && table[at] != hash)
		at = (at + 1) & mask;
	if (table[at])
		return false;
	table[at] = hash;
	table_used++;
	return true;
}

static void save(const struct play *p, int depth)
{
	uint8_t *to = p->stack + (size_t)depth * p->state_bytes;

	for (int r = 0; r < p->region_count; r++) {
		memcpy(to, p->regions[r].at, p->regions[r].bytes);
		to += p->regions[r].bytes;
	}
}

static void restore(const struct play *p, int depth)
{
	const uint8_t *from = p->stack + (size_t)depth * p->state_bytes;

	for (int r = 0; r < p->region_count; r++) {
		memcpy(p->regions[r].at, from, p->regions[r].bytes);
		from += p->regions[r].bytes;
	}
}

static uint8_t *buffer(const struct play *p, int rank, int call, int side)
{
	return p->buffers[p->program->call[call].where][rank] + p->at[side][call];
}

/* Its own end of a call, in words. */
static void complain(const struct play *p, int rank, int call, const char *what)
{
	const struct play_call *c = &p->program->call[call];

	fail_msg("%d ranks: rank %d, call %d (%s of %zu bytes, root %d, %s memory): %s",
		 p->program->size, rank, call, collective_name(c->collective), c->bytes, c->root,
		 c->where == IN_SHARED ? "shared" : "ordinary", what);
}

static void check_result(const struct play *p, int rank, int call)
{
	const struct play_call *c = &p->program->call[call];
	const uint8_t *got = buffer(p, rank, call, RECV_SIDE);
	size_t blocks = blocks_of(c, p->program->size, rank, RECV_SIDE);
	char text[80];

	for (size_t i = 0; i < blocks * c->bytes; i++) {
		uint8_t want = expected(p->program, call, rank, i / c->bytes, i % c->bytes);
		if (got[i] == want)
			continue;
		snprintf(text, sizeof text, "byte %zu is %d, not %d", i, got[i], want);
		complain(p, rank, call, text);
	}
}

/* The caller uses its buffers for something else. */
static void forget_buffers(const struct play *p, int rank, int call)
{
	const struct play_call *c = &p->program->call[call];

	for (int side = 0; side < 2; side++)
		memset(buffer(p, rank, call, side), 0xee,
		       blocks_of(c, p->program->size, rank, side) * c->bytes);
}

static void begin(struct play *p, int rank)
{
	struct actor *a = &p->actors[rank];
	const struct play_call *c = &p->program->call[a->next];
	int size = p->program->size;
	uint8_t *send = buffer(p, rank, a->next, SEND_SIDE);
	struct call_args args = {.collective = c->collective,
				 .dtype = TUTTI_U8,
				 .op = TUTTI_SUM,
				 .root = c->root,
				 .count = c->bytes,
				 .sequence = (uint64_t)a->next,
				 .fingerprint = (uint32_t)a->next + 1};

	for (size_t i = 0; i < blocks_of(c, size, rank, SEND_SIDE) * c->bytes; i++)
		send[i] = sent(a->next, rank, i / c->bytes, i % c->bytes);
	args.send = blocks_of(c, size, rank, SEND_SIDE) ? send : NULL;
	if (blocks_of(c, size, rank, RECV_SIDE))
		args.recv = buffer(p, rank, a->next, RECV_SIDE);
	window_begin(p->windows[rank], &a->run, &args);
	a->is_busy = true;
}

static void move(struct play *p, int rank)
{
	struct actor *a = &p->actors[rank];
	tutti_status status;

	if (!a->is_busy) {
		begin(p, rank);
		return;
	}
	status = window_advance_once(p->windows[rank], &a->run);
	if (status == TUTTI_IN_PROGRESS)
		return;
	if (status != TUTTI_OK)
		complain(p, rank, a->next, last_error());
	check_result(p, rank, a->next);
	forget_buffers(p, rank, a->next);
	memset(&a->run, 0, sizeof a->run);
	a->is_busy = false;
	a->next++;
}

static bool is_finished(const struct play *p, int rank)
{
	return p->actors[rank].next == p->program->calls;
}

static void complain_of_waiting(const struct play *p)
{
	for (int rank = 0; rank < p->program->size; rank++)
		if (!is_finished(p, rank))
			complain(p, rank, p->actors[rank].next, "the ranks wait for each other");
}

/* Everything that can follow the state saved at depth 0, depth first. */
static void explore(struct play *p)
{
	static int next_rank[DEPTH_MAX];
	static bool has_moved[DEPTH_MAX];
	static uint64_t hash[DEPTH_MAX];
	int depth = 0, size = p->program->size;

	save(p, 0);
	hash[0] = hash_of(p);
	next_rank[0] = 0;
	has_moved[0] = false;
	while (depth >= 0) {
		int rank = next_rank[depth]++;
		if (rank == size) {
			if (!has_moved[depth]) {
				restore(p, depth);
				complain_of_waiting(p);
				p->ends++;
			}
			depth--;
			continue;
		}
		restore(p, depth);
		if (is_finished(p, rank))
			continue;
		move(p, rank);
		p->moves++;
		uint64_t here = hash_of(p);
		has_moved[depth] |= here != hash[depth];
		if (!remember(here))
			continue;
		assert_true(++p->states < STATES_MAX && depth + 1 < DEPTH_MAX);
		save(p, ++depth);
		hash[depth] = here;
		next_rank[depth] = 0;
		has_moved[depth] = false;
	}
}

/* The shortest slots there are: a few hundred bytes are many pieces. */
static size_t least_window_bytes(int size)
{
	struct window_config config = {.size = size,
				       .policy = wait_policy_on(INT_MAX, wait_cores())};
	struct geometry geometry;

	while (geometry_choose(&geometry, &config) != TUTTI_OK)
		config.window_bytes += 128;
	return config.window_bytes;
}

/* tutti_mem_alloc, by all ranks in turn. */
static void allocate_shared(struct play *p, size_t bytes)
{
	struct call_args args = {
		.collective = COLL_MEM_ALLOC, .count = bytes, .fingerprint = 0xa110c};
	int done = 0, size = p->program->size;

	for (int rank = 0; rank < size; rank++)
		window_begin(p->windows[rank], &p->actors[rank].run, &args);
	while (done < size)
		for (int rank = 0; rank < size; rank++) {
			struct window_run *run = &p->actors[rank].run;
			if (p->buffers[IN_SHARED][rank] ||
			    window_advance_once(p->windows[rank], run) != TUTTI_OK)
				continue;
			p->buffers[IN_SHARED][rank] = run->memory;
			assert_non_null(p->buffers[IN_SHARED][rank]);
			done++;
		}
	memset(p->actors, 0, sizeof p->actors);
}

static bool uses(const struct program *program, enum where where)
{
	for (int c = 0; c < program->calls; c++)
		if (program->call[c].where == where)
			return true;
	return false;
}

static void place_buffers(struct play *p)
{
	size_t at = 0;

	for (int side = 0; side < 2; side++)
		for (int c = 0; c < p->program->calls; c++) {
			size_t bytes = p->program->call[c].bytes * (size_t)p->program->size;
			p->at[side][c] = at;
			at += (bytes + 127) / 64 * 64;
		}
	p->buffer_bytes = at;
}

static void open_play(struct play *p, const struct program *program)
{
	struct team team = {.size = program->size,
			    .window_bytes = least_window_bytes(program->size),
			    .is_oversubscribed = true}; /* on every machine the same */
	struct segment_head *head;

	*p = (struct play){.program = program};
	team_open(&team, p->windows);
	place_buffers(p);
	allocate_shared(p, p->buffer_bytes);
	head = p->windows[0]->at.head;
	add_region(p, head, head->geometry.board_at);
	add_region(p, p->actors, sizeof p->actors);
	for (int rank = 0; rank < program->size; rank++) {
		p->buffers[IN_ORDINARY][rank] = calloc(1, p->buffer_bytes);
		assert_non_null(p->buffers[IN_ORDINARY][rank]);
		add_window(p, p->windows[rank]);
		for (int where = 0; where < 2; where++)
			if (uses(program, (enum where)where))
				add_region(p, p->buffers[where][rank], p->buffer_bytes);
	}
	p->stack = malloc(DEPTH_MAX * p->state_bytes);
	assert_non_null(p->stack);
	if (table_used > STATES_MAX / 2) {
		memset(table, 0, sizeof *table << TABLE_BITS);
		table_used = 0;
	}
}

static void close_play(struct play *p)
{
	for (int rank = 0; rank < p->program->size; rank++) {
		window_mem_free(p->buffers[IN_SHARED][rank]);
		free(p->buffers[IN_ORDINARY][rank]);
	}
	team_close(p->windows, p->program->size);
	free(p->stack);
}

static void play(const struct program *program)
{
	static struct play p;

	open_play(&p, program);
	explore(&p);
	close_play(&p);
	assert_true(p.ends > 0);
	all_states += p.states;
	all_moves += p.moves;
	all_programs++;
}

enum length { SHORT, LONG };

struct kind {
	enum collective collective;
	enum length length;
	enum where where;
};

/* Bytes of a call that goes through PIECES slots, the last of them not full. */
static size_t long_bytes(enum collective collective, int size)
{
	size_t slot = WINDOW_ALIGN * (size_t)size, ranks = (size_t)size;

	switch (collective) {
	case COLL_REDUCE_SCATTER:
		return (PIECES * slot - 40) / ranks;
	case COLL_SCATTER:
	case COLL_ALL_TO_ALL:
		return (PIECES * slot - 40) / (ranks - 1);
	default:
		return PIECES * slot - 40;
	}
}

static void add_call(struct program *p, struct kind kind, int root)
{
	size_t bytes = kind.length == LONG ? long_bytes(kind.collective, p->size) : 9;

	if (kind.collective == COLL_BARRIER)
		bytes = 0;
	p->call[p->calls++] = (struct play_call){kind.collective, bytes, root, kind.where};
}

static struct kind kinds[3 * COLL_PATTERNS]; /* all that there are */
static int kind_count;

static void list_kinds(void)
{
	for (int c = 0; c < COLL_PATTERNS; c++) {
		kinds[kind_count++] = (struct kind){(enum collective)c, SHORT, IN_ORDINARY};
		if (c == COLL_BARRIER)
			continue;
		kinds[kind_count++] = (struct kind){(enum collective)c, LONG, IN_ORDINARY};
		kinds[kind_count++] = (struct kind){(enum collective)c, LONG, IN_SHARED};
	}
}

static void play_one(int size, const struct kind *calls, int count)
{
	struct program program = {.size = size};

	for (int i = 0; i < count; i++)
		add_call(&program, calls[i], i % 2 ? size - 1 : 0);
	play(&program);
}

/* Killed: two slots: a slot is staged into before its rank has copied out what it needs. */
static void test_each_call(void **state)
{
	for (int size = 2; size <= RANKS_MAX; size++)
		for (int i = 0; i < kind_count; i++)
			play_one(size, &kinds[i], 1);
}

/* What is left of a call when the next one begins. */
static void test_each_pair(void **state)
{
	for (int i = 0; i < kind_count; i++)
		for (int k = 0; k < kind_count; k++)
			play_one(2, (struct kind[]){kinds[i], kinds[k]}, 2);
}

/* As far as its lines allow, and round them once; then the other way. */
static void test_root_ahead(void **state)
{
	static const enum collective each[] = {COLL_BROADCAST, COLL_SCATTER, COLL_GATHER,
					       COLL_REDUCE};

	for (size_t c = 0; c < sizeof each / sizeof *each; c++) {
		struct program program = {.size = 2};
		for (uint32_t i = 0; i < WINDOW_LINES + 4; i++)
			add_call(&program, (struct kind){each[c], SHORT, IN_ORDINARY}, 0);
		add_call(&program, (struct kind){COLL_BROADCAST, LONG, IN_ORDINARY}, 1);
		play(&program);
	}
}

/* Three ranks, or three calls. */
static void test_more(void **state)
{
	const char *bound = getenv("WINDOW_ORDERS");
	bool is_long = bound && strcmp(bound, "long") == 0;

	for (int i = 0; i < kind_count; i++)
		for (int k = 0; k < kind_count; k++) {
			struct kind three[] = {kinds[i], kinds[k], kinds[(i + 5 * k) % kind_count]};
			if (is_long || ((i + k) % kind_count == 0 && i % 6 == 1))
				play_one(3, three, 2);
			if (is_long || (i + k) % kind_count == 1)
				play_one(2, three, 3);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_call),
		cmocka_unit_test(test_each_pair),
		cmocka_unit_test(test_root_ahead),
		cmocka_unit_test(test_more),
	};
	int failed;

	table = calloc((size_t)1 << TABLE_BITS, sizeof *table);
	if (!table)
		return 1;
	list_kinds();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%llu programs, %llu states, %llu moves, %u slots\n",
	       (unsigned long long)all_programs, (unsigned long long)all_states,
	       (unsigned long long)all_moves, WINDOW_SLOTS);
	free(table);
	return failed;
}

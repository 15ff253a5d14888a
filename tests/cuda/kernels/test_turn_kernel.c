/* slow: 3 s */
/* Breaks when calls by turns give other bytes than the host: any collective, in place, unaligned,
 * in several chunks, ranks on any GPUs, with buffers that leaders map or not, each rank at its own
 * pace, and where the count of turns wraps; or when ranks that differ, or that have failed, write a
 * result or are told that there is one. */
#include "channel_world.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "cuda/kernels/give_way.h"
#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define CALLS 12 /* of a program */
#define UNITS 6  /* of 128 bytes that a block has for what goes to, or comes from, each rank */

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

struct turns {
	struct world world;
	struct turn_page *pages[WORLD_RANKS];
	char *staging[WORLD_RANKS];
	size_t staging_bytes;
	int gpus[WORLD_RANKS]; /* on which each rank is */
	uint32_t first;
};

static void open_turns(struct turns *w, int size, int n_gpus, uint32_t first)
{
	world_create(&w->world, size, 0);
	w->staging_bytes = (size_t)WORLD_CHANNELS * UNITS * CHANNEL_ALIGN * 2 * (unsigned)size;
	w->first = first;
	for (int r = 0; r < size; r++) {
		w->gpus[r] = r < n_gpus ? r : (int)draw((uint64_t)n_gpus);
		w->pages[r] = calloc(1, sizeof *w->pages[r]);
		w->staging[r] = aligned_alloc(CHANNEL_ALIGN, w->staging_bytes);
		assert_non_null(w->pages[r]);
		assert_non_null(w->staging[r]);
	}
}

static void close_turns(struct turns *w)
{
	for (int r = 0; r < w->world.size; r++) {
		free(w->pages[r]);
		free(w->staging[r]);
	}
	world_destroy(&w->world);
}

static bool leads(const struct turns *w, int rank)
{
	int r = 0;

	while (w->gpus[r] != w->gpus[rank])
		r++;
	return r == rank;
}

static int count_leaders(const struct turns *w)
{
	int n = 0;

	for (int r = 0; r < w->world.size; r++)
		n += leads(w, r);
	return n;
}

static uint32_t locals_of(const struct turns *w, int rank)
{
	uint32_t locals = 0;

	for (int r = 0; r < w->world.size; r++)
		if (w->gpus[r] == w->gpus[rank])
			locals |= 1u << r;
	return locals;
}

/* As the host of a rank whose communicator has failed. */
static void end_rank(const struct turns *w, int rank)
{
	struct turn_page *page = w->pages[rank];

	world_abort(w->world.hosts[rank], 1);
	atomic_store((_Atomic uint64_t *)&page->has_failed, 1);
	for (int r = 0; r < w->world.size; r++) {
		atomic_store((_Atomic uint32_t *)&page->posted[r].released, 1);
		atomic_store((_Atomic uint32_t *)&page->done[r].released, 1);
	}
}

static void draw_call(const struct turns *w, struct world_call *c)
{
	size_t most, count;

	memset(c, 0, sizeof *c);
	c->kind = (enum call_kind)draw(CALL_KINDS);
	do {
		c->dtype = (tutti_dtype)draw(DTYPE_COUNT);
		c->op = (tutti_op)draw(OPS_BUILT_IN);
	} while (!op_fits(c->op, c->dtype));
	most = (draw(2) ? 100 : 12000) / dtype_bytes(c->dtype);
	count = draw(most + 1);
	c->blocks = 1 + (unsigned)draw(WORLD_CHANNELS);
	c->root = (int)draw((uint64_t)w->world.size);
	c->in_place = draw(2) != 0;
	for (int a = 0; a < w->world.size; a++) {
		c->shift[a] = draw(2) ? (int)draw(16) : 0;
		c->send_is_mapped[a] = draw(2) != 0;
		c->recv_is_mapped[a] = draw(2) != 0;
		for (int b = 0; b < w->world.size; b++)
			c->counts[a][b] = c->kind != CALL_ALL_TO_ALLV ? count
					  : draw(4)                   ? draw(most + 1)
								      : 0;
	}
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* In place a leader of one GPU would write what that of another one still reads. */
static bool must_stage(const struct turns *w, const struct world_call *c, int rank)
{
	return count_leaders(w) > 1 && c->kind == CALL_ALL_REDUCE && c->send[rank] == c->recv[rank];
}

static void post_words(const struct turns *w, const struct turn_args *a, int rank)
{
	struct turn_posting *p = &w->pages[rank]->postings[a->slot];

	p->send = a->lines.send_place;
	p->recv = a->lines.recv_place;
	p->fingerprint = a->lines.channel.fingerprint;
	for (int r = 0; r < w->world.size; r++)
		p->peers[r] = (struct turn_peer){a->lines.send_offset[r], a->lines.recv_offset[r],
						 a->lines.recv_bytes[r]};
}

/* Returns how many turns there are. */
static uint32_t fill_in(const struct turns *w, const struct world_call *c, int rank,
			struct turn_args *a)
{
	struct packets_args unused;
	uint64_t most = 0, share, piece;

	memset(a, 0, sizeof *a);
	world_args(&w->world, c, rank, &unused, &a->lines);
	a->lines.channel.staging_bytes =
		w->staging_bytes / c->blocks / CHANNEL_ALIGN * CHANNEL_ALIGN;
	a->locals = leads(w, rank) ? locals_of(w, rank) : 0;
	if (must_stage(w, c, rank))
		a->lines.send_place = CHANNEL_NOWHERE;
	for (int i = 0; i < w->world.size; i++) {
		a->pages[i] = w->pages[i];
		a->staging[i] = w->staging[i];
		for (int k = 0; k < w->world.size; k++)
			if (c->counts[i][k] * dtype_bytes(c->dtype) > most)
				most = c->counts[i][k] * dtype_bytes(c->dtype);
	}
	share = round_up(most, c->blocks * CHANNEL_ALIGN) / c->blocks;
	piece = turn_piece_bytes(&a->lines);
	a->copiers = turn_copiers(c->shift[0] % 2 ? share : 100000);
	return share <= piece ? 1 : (uint32_t)((share + piece - 1) / piece);
}

static void run_kernel(struct turn_args *a, enum turn_phase phase, unsigned blocks)
{
	struct launch launch;

	a->phase = phase;
	launch_start(&launch, launch_turn_block, a, blocks);
	launch_wait(&launch);
}

/* As streams write and wait. */
static void set_word(uint32_t *word, uint32_t value)
{
	atomic_store_explicit((_Atomic uint32_t *)word, value, memory_order_release);
}

static void await(const struct turn_flag *flag, uint32_t turn)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(uintptr_t)flag;

	while (!(atomic_load_explicit(word, memory_order_acquire) & turn_awaited(turn)))
		give_way();
}

/* What a rank's stream does in a turn. */
static void take_turn(const struct turns *w, const struct world_call *c, int rank,
		      struct turn_args *a)
{
	int size = w->world.size;

	if (a->lines.send_place == CHANNEL_NOWHERE)
		run_kernel(a, TURN_STAGE, c->blocks);
	for (int r = 0; r < size; r++)
		if (leads(w, r))
			set_word(&w->pages[r]->posted[rank].turn, turn_mark(a->turn));
	for (int r = 0; r < size && leads(w, rank); r++)
		await(&w->pages[rank]->posted[r], a->turn);
	if (leads(w, rank))
		run_kernel(a, TURN_MOVE, c->blocks);
	for (int r = 0; r < size; r++)
		if (leads(w, r))
			await(&w->pages[rank]->done[r], a->turn);
	if (a->lines.recv_place == CHANNEL_NOWHERE)
		run_kernel(a, TURN_TAKE, c->blocks);
}

/* What a stream does in one call; *turn: the rank's next one. */
static void run_call(const struct turns *w, const struct world_call *c, int rank, uint32_t number,
		     uint32_t *turn)
{
	struct turn_args a;
	uint32_t chunks = fill_in(w, c, rank, &a);

	a.slot = number % TURN_CALLS;
	post_words(w, &a, rank);
	for (a.chunk = 0; a.chunk < chunks; a.chunk++) {
		a.turn = (*turn)++;
		take_turn(w, c, rank, &a);
	}
}

struct program {
	const struct turns *turns;
	struct world_call *calls;
	int rank, n;
	pthread_t thread;
};

static void *run_program(void *arg)
{
	struct program *p = arg;
	uint32_t turn = p->turns->first;

	for (int i = 0; i < p->n; i++) {
		struct world_call *c = &p->calls[i];
		run_call(p->turns, c, p->rank, (uint32_t)i + 1, &turn);
		memcpy(c->got[p->rank], c->recv[p->rank], c->recv_bytes[p->rank]);
		memset(c->send[p->rank], 0x5a, c->send_bytes[p->rank]); /* it may be used again */
		memset(c->recv[p->rank], 0x5a, c->recv_bytes[p->rank]);
	}
	return NULL;
}

static void start(struct program *p)
{
	assert_int_equal(pthread_create(&p->thread, NULL, run_program, p), 0);
}

/* All ranks do the calls of their own, each at its own pace. */
static void run_programs(const struct turns *w, struct world_call *calls[], int n)
{
	struct program programs[WORLD_RANKS];

	for (int r = 0; r < w->world.size; r++) {
		programs[r] = (struct program){w, calls[r], r, n, 0};
		start(&programs[r]);
	}
	for (int r = 0; r < w->world.size; r++)
		pthread_join(programs[r].thread, NULL);
}

static void run_random(int size, uint32_t first)
{
	static struct world_call calls[CALLS];
	struct world_call *all[WORLD_RANKS];
	struct turns w;

	open_turns(&w, size, draw(2) ? 1 : 1 + (int)draw((uint64_t)size), first);
	for (int i = 0; i < CALLS; i++) {
		draw_call(&w, &calls[i]);
		world_prepare(&w.world, &calls[i], &seed);
	}
	for (int r = 0; r < size; r++)
		all[r] = calls;
	run_programs(&w, all, CALLS);
	for (int r = 0; r < size; r++) {
		assert_int_equal(w.world.hosts[r]->aborts[0].word, 0);
		assert_int_equal(w.world.hosts[r]->error, 0);
	}
	for (int i = 0; i < CALLS; i++) {
		world_check(&w.world, &calls[i]);
		world_release(&w.world, &calls[i]);
	}
	close_turns(&w);
}

static void any_calls(void **state)
{
	int rounds = long_or(32, 12, 8, 6);

	for (int i = 0; i < rounds; i++)
		run_random(2 + (int)draw(WORLD_RANKS - 1), 0);
}

static void while_turns_wrap(void **state)
{
	int rounds = long_or(8, 4, 3, 2);

	for (int i = 0; i < rounds; i++)
		run_random(2 + (int)draw(WORLD_RANKS - 1), UINT32_MAX - (uint32_t)draw(CALLS));
}

static void make_long_call(const struct turns *w, struct world_call *c, enum call_kind kind)
{
	memset(c, 0, sizeof *c);
	c->kind = kind;
	c->dtype = TUTTI_F32;
	c->blocks = 2;
	for (int a = 0; a < w->world.size; a++) {
		c->send_is_mapped[a] = c->recv_is_mapped[a] = a % 2;
		for (int b = 0; b < w->world.size; b++)
			c->counts[a][b] = 3000;
	}
	world_prepare(&w->world, c, &seed);
}

static char *copy_of(const void *bytes, size_t n)
{
	char *copy = malloc(n);

	assert_non_null(copy);
	return memcpy(copy, bytes, n);
}

/* Rank `odd` makes the second call, which has another number of chunks: the leaders find it, their
 * streams do not stay, and no rank has a result. */
static void ranks_make_different_calls(void **state)
{
	static struct world_call calls[2];
	struct program programs[WORLD_RANKS];
	char *before[WORLD_RANKS];
	struct turns w;
	const int odd = 2;

	open_turns(&w, 5, 2, (uint32_t)draw(8));
	make_long_call(&w, &calls[0], CALL_ALL_REDUCE);
	make_long_call(&w, &calls[1], CALL_ALL_TO_ALL);
	w.world.fingerprints[odd] = 0x1234567;
	for (int r = 0; r < w.world.size; r++) {
		struct world_call *c = &calls[r == odd];
		before[r] = copy_of(c->recv[r], c->recv_bytes[r]);
		programs[r] = (struct program){&w, c, r, 1, 0};
		start(&programs[r]);
	}
	for (int r = 0; r < 2; r++) {
		const struct channel_host *h = w.world.hosts[r];
		pthread_join(programs[r].thread, NULL);
		assert_int_equal(h->error, CHANNEL_OTHER_CALL);
		assert_int_equal(h->aborts[0].word, 1);
		assert_int_equal(h->peer, odd);
		assert_int_equal(h->fingerprint, w.world.fingerprints[odd]);
	}
	for (int r = 0; r < w.world.size; r++) {
		end_rank(&w, r);
		if (r >= 2)
			pthread_join(programs[r].thread, NULL);
		assert_memory_equal(calls[r == odd].got[r], before[r],
				    calls[r == odd].recv_bytes[r]);
		assert_int_equal(w.world.hosts[r]->error == 0, r >= 2);
		for (int g = 0; g < 2; g++)
			assert_int_equal(w.pages[r]->done[g].turn, 0);
		free(before[r]);
	}
	world_release(&w.world, &calls[0]);
	world_release(&w.world, &calls[1]);
	close_turns(&w);
}

/* Its buffers may have been given back: it reads none and writes none. It posts, but no leader
 * tells that its turn is done, whether the leader comes to it before or afterwards. */
static void a_rank_has_failed(void **state)
{
	static struct world_call call;
	struct program programs[3];
	struct turns w;

	open_turns(&w, 3, 1, 0);
	make_long_call(&w, &call, CALL_ALL_GATHER);
	char *before = copy_of(call.recv[2], call.recv_bytes[2]);
	memset(w.staging[2], 0x33, w.staging_bytes);
	end_rank(&w, 2);
	for (int r = 0; r < 3; r++) {
		programs[r] = (struct program){&w, &call, r, 1, 0};
		start(&programs[r]);
	}
	pthread_join(programs[2].thread, NULL);
	assert_memory_equal(before, call.got[2], call.recv_bytes[2]);
	for (uint64_t i = 0; i < w.staging_bytes; i++)
		assert_int_equal(w.staging[2][i], 0x33);
	end_rank(&w, 0);
	end_rank(&w, 1);
	for (int r = 0; r < 3; r++) {
		if (r < 2)
			pthread_join(programs[r].thread, NULL);
		assert_int_equal(w.pages[r]->done[0].turn, 0);
		assert_int_equal(w.world.hosts[r]->error, 0);
	}
	free(before);
	world_release(&w.world, &call);
	close_turns(&w);
}

/* While the leader's kernel moves: the others' stream must not find that the turn is done. Their
 * hosts see how long it uses the buffers, whether the call fails or not. */
static void a_rank_fails_meanwhile(void **state)
{
	static struct world_call call;
	struct turn_args a;
	struct turns w;

	open_turns(&w, 2, 1, 0);
	make_long_call(&w, &call, CALL_ALL_GATHER);
	fill_in(&w, &call, 0, &a);
	post_words(&w, &a, 0);
	struct turn_args other;
	fill_in(&w, &call, 1, &other);
	post_words(&w, &other, 1);
	/* One block of two, which does its part; then the rank fails, and the other one comes. */
	a.phase = TURN_MOVE;
	launch_turn_block(&a, &(struct kernel_block){0, 2});
	assert_int_equal(w.pages[0]->moves, 1);
	assert_int_equal(w.pages[1]->done[0].turn, 0);
	w.pages[1]->has_failed = 1;
	launch_turn_block(&a, &(struct kernel_block){1, 2});
	assert_int_equal(w.pages[0]->moves, 0);
	for (int r = 0; r < 2; r++)
		assert_int_equal(w.pages[r]->done[0].turn, 0);
	/* And where none fails both are told. */
	w.pages[1]->has_failed = 0;
	launch_turn_block(&a, &(struct kernel_block){1, 2});
	assert_int_equal(w.pages[0]->moves, 1);
	assert_int_equal(w.pages[1]->done[0].turn, 0);
	launch_turn_block(&a, &(struct kernel_block){0, 2});
	assert_int_equal(w.pages[0]->moves, 0);
	for (int r = 0; r < 2; r++)
		assert_int_equal(w.pages[r]->done[0].turn, turn_mark(0));
	world_release(&w.world, &call);
	close_turns(&w);
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_calls),
		cmocka_unit_test(while_turns_wrap),
		cmocka_unit_test(ranks_make_different_calls),
		cmocka_unit_test(a_rank_has_failed),
		cmocka_unit_test(a_rank_fails_meanwhile),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

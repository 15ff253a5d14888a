/* slow: 3 s */
/* Breaks when calls by turns give other bytes than the host: any collective, in place, unaligned,
 * in several chunks, each rank at its own pace, and where the count of turns wraps; or when ranks
 * that differ, or that have failed, write a result or leave a stream waiting. */
#include "channel_world.h"
#include "memory/dtype.h"
#include "memory/ops.h"
#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define CALLS 12 /* of a program */
#define UNITS 6  /* of 128 bytes that a half has for each channel and rank */

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

struct turns {
	struct world world;
	struct turn_page *pages[WORLD_RANKS];
	char *staging[WORLD_RANKS];
	uint64_t half_bytes;
	uint32_t first;
};

static void open_turns(struct turns *w, int size, uint32_t first)
{
	world_create(&w->world, size, 0);
	w->half_bytes = (uint64_t)WORLD_CHANNELS * UNITS * CHANNEL_ALIGN * (unsigned)size;
	w->first = first;
	for (int r = 0; r < size; r++) {
		w->pages[r] = calloc(1, sizeof *w->pages[r]);
		w->staging[r] = aligned_alloc(CHANNEL_ALIGN, 2 * w->half_bytes);
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

static void fill_in(const struct turns *w, const struct world_call *c, int rank,
		    struct turn_args *a)
{
	struct packets_args unused;
	uint64_t most = 0, share, size = (uint64_t)w->world.size;

	memset(a, 0, sizeof *a);
	world_args(&w->world, c, rank, &unused, &a->lines);
	a->half_bytes = w->half_bytes;
	a->lines.channel.staging_bytes =
		w->half_bytes / c->blocks / (CHANNEL_ALIGN * size) * (CHANNEL_ALIGN * size);
	for (int i = 0; i < w->world.size; i++) {
		a->pages[i] = w->pages[i];
		a->staging[i] = w->staging[i];
		for (int k = 0; k < w->world.size; k++)
			if (c->counts[i][k] * dtype_bytes(c->dtype) > most)
				most = c->counts[i][k] * dtype_bytes(c->dtype);
	}
	share = round_up(most, c->blocks * CHANNEL_ALIGN) / c->blocks;
	a->chunks = (uint32_t)(round_up(share, turn_piece_bytes(&a->lines)) /
			       turn_piece_bytes(&a->lines));
	a->chunks += a->chunks == 0;
}

static void run_kernel(const struct turn_args *a, unsigned blocks)
{
	struct launch launch;

	launch_start(&launch, launch_turn_block, a, blocks);
	launch_wait(&launch);
}

/* As a stream waits. */
static void await(const struct turn_args *a, uint32_t rank)
{
	for (uint32_t r = 0; r < a->lines.channel.size; r++) {
		_Atomic uint32_t *word = (_Atomic uint32_t *)&a->pages[rank]->flags[r];
		while (r != rank && !(atomic_load_explicit(word, memory_order_acquire) &
				      turn_bits_awaited(a->turn)))
			sched_yield();
	}
}

/* What a stream does in one call; *turn: the rank's next one. */
static void run_call(const struct turns *w, const struct world_call *c, int rank, uint32_t number,
		     uint32_t *turn)
{
	struct turn_args a;

	fill_in(w, c, rank, &a);
	a.call = number;
	for (a.chunk = 0; a.chunk < a.chunks; a.chunk++) {
		a.turn = (*turn)++;
		a.phase = TURN_STAGE;
		run_kernel(&a, c->blocks);
		await(&a, (uint32_t)rank);
		a.phase = TURN_MOVE;
		run_kernel(&a, c->blocks);
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

/* All ranks do the calls of their own, each at its own pace. */
static void run_programs(const struct turns *w, struct world_call *calls[], int n)
{
	struct program programs[WORLD_RANKS];

	for (int r = 0; r < w->world.size; r++) {
		programs[r] = (struct program){w, calls[r], r, n, 0};
		assert_int_equal(
			pthread_create(&programs[r].thread, NULL, run_program, &programs[r]), 0);
	}
	for (int r = 0; r < w->world.size; r++)
		pthread_join(programs[r].thread, NULL);
}

static void run_random(int size, uint32_t first)
{
	static struct world_call calls[CALLS];
	struct world_call *all[WORLD_RANKS];
	struct turns w;

	open_turns(&w, size, first);
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
		for (int c = 0; c < CHANNELS_MOST; c++)
			assert_int_equal(w.world.hosts[r]->started[c],
					 w.world.hosts[r]->finished[c]);
	}
	for (int i = 0; i < CALLS; i++) {
		world_check(&w.world, &calls[i]);
		world_release(&w.world, &calls[i]);
	}
	close_turns(&w);
}

static void any_calls(void **state)
{
	int rounds = whole_or(32, 12, 8);

	(void)state;
	for (int i = 0; i < rounds; i++)
		run_random(2 + (int)draw(WORLD_RANKS - 1), 0);
}

static void while_turns_wrap(void **state)
{
	int rounds = whole_or(8, 4, 3);

	(void)state;
	for (int i = 0; i < rounds; i++)
		run_random(2 + (int)draw(WORLD_RANKS - 1), UINT32_MAX - (uint32_t)draw(CALLS));
}

static void make_long_call(const struct turns *w, struct world_call *c, enum call_kind kind)
{
	memset(c, 0, sizeof *c);
	c->kind = kind;
	c->dtype = TUTTI_F32;
	c->blocks = 2;
	for (int a = 0; a < w->world.size; a++)
		for (int b = 0; b < w->world.size; b++)
			c->counts[a][b] = 3000;
	world_prepare(&w->world, c, &seed);
}

/* Rank `odd` makes the second call, which has another number of chunks: no stream stays, and no
 * rank has a result. */
static void ranks_make_different_calls(void **state)
{
	static struct world_call calls[2];
	struct world_call *all[WORLD_RANKS];
	struct turns w;
	const int odd = 2;

	(void)state;
	open_turns(&w, 5, (uint32_t)draw(8));
	make_long_call(&w, &calls[0], CALL_ALL_REDUCE);
	make_long_call(&w, &calls[1], CALL_ALL_TO_ALL);
	w.world.fingerprints[odd] = 0x1234567;
	char *before[WORLD_RANKS];
	for (int r = 0; r < w.world.size; r++) {
		const struct world_call *c = &calls[r == odd];
		all[r] = &calls[r == odd];
		before[r] = malloc(c->recv_bytes[r]);
		memcpy(before[r], c->recv[r], c->recv_bytes[r]);
	}
	run_programs(&w, all, 1);
	for (int r = 0; r < w.world.size; r++) {
		const struct channel_host *h = w.world.hosts[r];
		assert_memory_equal(all[r]->got[r], before[r], all[r]->recv_bytes[r]);
		assert_int_equal(h->error, CHANNEL_OTHER_CALL);
		assert_int_equal(h->aborts[0].word, 1);
		assert_int_equal(h->peer == (uint64_t)odd, r != odd);
		assert_int_equal(h->fingerprint, w.world.fingerprints[h->peer]);
		assert_int_equal(h->started[0], h->finished[0]);
		free(before[r]);
	}
	world_release(&w.world, &calls[0]);
	world_release(&w.world, &calls[1]);
	close_turns(&w);
}

static void ranks_differ_in_bytes(void **state)
{
	static struct world_call calls[2];
	struct world_call *all[WORLD_RANKS];
	struct turns w;

	(void)state;
	open_turns(&w, 2, 0);
	make_long_call(&w, &calls[0], CALL_ALL_TO_ALLV);
	make_long_call(&w, &calls[1], CALL_ALL_TO_ALLV);
	calls[1].counts[0][1] = 2999; /* what rank 1 expects of rank 0 */
	all[0] = &calls[0];
	all[1] = &calls[1];
	/* Rank 1 fails in the first turn; rank 0 waits for its second until the host ends that. */
	struct program programs[2] = {{&w, all[0], 0, 1, 0}, {&w, all[1], 1, 1, 0}};
	for (int r = 0; r < 2; r++)
		pthread_create(&programs[r].thread, NULL, run_program, &programs[r]);
	pthread_join(programs[1].thread, NULL);
	assert_int_equal(w.world.hosts[1]->error, CHANNEL_OTHER_BYTES);
	assert_int_equal(w.world.hosts[1]->peer, 0);
	assert_int_equal(w.world.hosts[1]->bytes, 12000);
	world_abort(w.world.hosts[0], 1);
	atomic_store((_Atomic uint16_t *)&w.pages[0]->flags[1].released, 1);
	pthread_join(programs[0].thread, NULL);
	assert_int_equal(w.world.hosts[0]->error, 0);
	world_release(&w.world, &calls[0]);
	world_release(&w.world, &calls[1]);
	close_turns(&w);
}

/* Its buffers may have been given back: it reads none, writes none, and tells nobody. */
static void a_rank_comes_after_the_failure(void **state)
{
	static struct world_call call;
	struct turns w;
	uint32_t turn = 0;

	(void)state;
	open_turns(&w, 3, 0);
	make_long_call(&w, &call, CALL_ALL_GATHER);
	char *before = malloc(call.recv_bytes[0]);
	memcpy(before, call.recv[0], call.recv_bytes[0]);
	memset(w.staging[0], 0x33, 2 * w.half_bytes);
	world_abort(w.world.hosts[0], 1);
	for (int r = 0; r < 3; r++)
		w.pages[0]->flags[r].released = 1;
	run_call(&w, &call, 0, 1, &turn);
	assert_memory_equal(before, call.recv[0], call.recv_bytes[0]);
	for (uint64_t i = 0; i < 2 * w.half_bytes; i++)
		assert_int_equal(w.staging[0][i], 0x33);
	for (int r = 1; r < 3; r++)
		assert_int_equal(w.pages[r]->flags[0].turn, 0);
	assert_int_equal(w.world.hosts[0]->started[0], 1);
	assert_int_equal(w.world.hosts[0]->finished[0], 1);
	assert_int_equal(w.world.hosts[0]->error, 0);
	free(before);
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
		cmocka_unit_test(ranks_differ_in_bytes),
		cmocka_unit_test(a_rank_comes_after_the_failure),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

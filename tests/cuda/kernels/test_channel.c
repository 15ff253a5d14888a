/* slow: 8 s */
/* Breaks when the collectives' kernels give other bytes than the host: any of them by packets and
 * by lines, with mapped and staged buffers, in place, unaligned, over many calls at each rank's own
 * pace, and where epochs wrap. */
#include "channel_world.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "tests/limit.h"
#include "tests/random.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define CALLS 16 /* of a program */

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

static void draw_counts(const struct world *w, struct world_call *c)
{
	size_t bytes = dtype_bytes(c->dtype);
	size_t most = c->by_packets ? c->blocks * 4096 / bytes : draw(2) ? 100 : 9000 / bytes;
	size_t count = draw(most + 1);

	if (c->by_packets) { /* as many blocks as the bytes need, or half of them */
		c->blocks = count == 0 ? 1 : (unsigned)((count * bytes + 4095) / 4096);
		c->blocks = draw(2) ? c->blocks : (c->blocks + 1) / 2;
	}
	for (int a = 0; a < w->size; a++)
		for (int b = 0; b < w->size; b++)
			c->counts[a][b] = c->kind != CALL_ALL_TO_ALLV ? count
					  : draw(4)                   ? draw(most + 1)
								      : 0;
}

static void draw_call(const struct world *w, struct world_call *c, bool by_packets)
{
	int how = (int)draw(3);

	memset(c, 0, sizeof *c);
	c->by_packets = by_packets;
	c->kind = (enum call_kind)draw(by_packets ? CALL_ALL_TO_ALLV : CALL_KINDS);
	do {
		c->dtype = (tutti_dtype)draw(DTYPE_COUNT);
		c->op = (tutti_op)draw(OPS_BUILT_IN);
	} while (!op_fits(c->op, c->dtype));
	c->is_scaled = c->kind <= CALL_REDUCE_SCATTER && draw(3) == 0;
	c->op = c->is_scaled ? TUTTI_SUM : c->op;
	for (int r = 0; r < w->size; r++)
		c->scalars[r] = random_next(&seed);
	c->blocks = 1 + (unsigned)draw(WORLD_CHANNELS);
	c->root = (int)draw((uint64_t)w->size);
	c->in_place = draw(2) != 0;
	for (int r = 0; r < w->size; r++) {
		c->send_is_mapped[r] = how == 0 || (how == 1 && draw(3));
		c->recv_is_mapped[r] = how == 0 || (how == 1 && draw(3));
		c->shift[r] = draw(2) ? (int)(draw(4) * dtype_bytes(c->dtype)) : 0;
		if (draw(8) == 0)
			c->shift[r] = (int)draw(16);
	}
	draw_counts(w, c);
}

static void check_words(const struct world *w)
{
	for (int r = 0; r < w->size; r++) {
		const struct channel_host *h = w->hosts[r];
		assert_int_equal(h->aborts[0].word, 0);
		assert_int_equal(h->error, 0);
		for (int c = 0; c < CHANNELS_MOST; c++)
			assert_int_equal(h->started[c], h->finished[c]);
	}
}

/* by: 0 lines, 1 packets, 2 both in any order. */
static void run_calls(struct world *w, int by)
{
	static struct world_call calls[CALLS];

	for (int i = 0; i < CALLS; i++) {
		draw_call(w, &calls[i], by == 2 ? draw(2) != 0 : by == 1);
		world_prepare(w, &calls[i], &seed);
	}
	world_run(w, calls, CALLS);
	check_words(w);
	for (int i = 0; i < CALLS; i++) {
		world_check(w, &calls[i]);
		world_release(w, &calls[i]);
	}
}

static void run_worlds(int by, uint32_t first_epoch)
{
	int rounds = whole_or(6, 4, 2);

	for (int i = 0; i < rounds; i++) {
		struct world w;
		world_create(&w, 2 + (int)draw(WORLD_RANKS - 1), first_epoch);
		run_calls(&w, by);
		run_calls(&w, by);
		world_destroy(&w);
	}
}

static void by_packets(void **state)
{
	run_worlds(1, 0);
}

static void by_lines(void **state)
{
	run_worlds(0, 0);
}

static void in_any_order(void **state)
{
	run_worlds(2, (uint32_t)draw(1000));
}

static void while_epochs_wrap(void **state)
{
	run_worlds(2, UINT32_MAX - CALLS + (uint32_t)draw(CALLS));
}

/* The whole slot has packets of epoch 2, and 2^32 calls later the epoch is 2 again: short packets
 * of then must not be completed by those of old. */
static void old_packets_are_cleared(void **state)
{
	static struct world_call calls[2];
	struct world w;

	world_create(&w, 3, 1);
	for (int round = 0; round < whole_or(40, 20, 6); round++) {
		for (int i = 0; i < 2; i++) {
			draw_call(&w, &calls[i], true);
			calls[i].kind = CALL_ALL_GATHER;
			calls[i].is_scaled = false;
			calls[i].blocks = 1;
			for (int a = 0; a < 3; a++)
				for (int b = 0; b < 3; b++)
					calls[i].counts[a][b] = 4096 / dtype_bytes(calls[i].dtype);
			world_prepare(&w, &calls[i], &seed);
		}
		world_run(&w, calls, 2);
		for (int i = 0; i < 2; i++) {
			world_check(&w, &calls[i]);
			world_release(&w, &calls[i]);
		}
		world_set_epoch(&w, 1);
	}
	world_destroy(&w);
}

/* The same arguments once more, as a graph is replayed: only the segment says that it is another
 * call. */
static void replayed(void **state)
{
	static struct world_call calls[CALLS];
	struct world w;

	world_create(&w, 4, 0);
	draw_call(&w, &calls[0], true);
	calls[0].in_place = false;
	calls[0].is_repeated = true;
	world_prepare(&w, &calls[0], &seed);
	for (int i = 1; i < CALLS; i++)
		calls[i] = calls[0];
	world_run(&w, calls, CALLS);
	check_words(&w);
	assert_int_equal(w.hosts[0]->finished[0], CALLS);
	world_check(&w, &calls[0]);
	world_release(&w, &calls[0]);
	world_destroy(&w);
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_packets),
		cmocka_unit_test(by_lines),
		cmocka_unit_test(in_any_order),
		cmocka_unit_test(while_epochs_wrap),
		cmocka_unit_test(old_packets_are_cleared),
		cmocka_unit_test(replayed),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

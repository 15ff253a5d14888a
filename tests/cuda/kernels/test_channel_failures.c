/* Breaks when a kernel of a collective does not end: where a rank never comes and the host aborts,
 * where ranks make different calls, or differ in bytes; or when the record names the wrong peer;
 * when a rank's kernel ends while another one's reads its buffer, or reads those of ranks that gave
 * up. */
#include "channel_world.h"
#include "core/memory/dtype.h"
#include "cuda/kernels/give_way.h"
#include "tests/limit.h"
#include "tests/random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define FIRST_EPOCH 7

static uint64_t seed;

struct arguments {
	struct packets_args packets;
	struct lines_args lines;
};

static struct launch launches[WORLD_RANKS];
static struct arguments arguments[WORLD_RANKS];

static uint64_t word(const uint64_t *p)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)p, memory_order_acquire);
}

static void make_call(const struct world *w, struct world_call *c, enum call_kind kind,
		      bool by_packets, bool is_mapped)
{
	memset(c, 0, sizeof *c);
	c->kind = kind;
	c->by_packets = by_packets;
	c->dtype = TUTTI_F32;
	c->blocks = 2;
	for (int a = 0; a < w->size; a++) {
		c->send_is_mapped[a] = c->recv_is_mapped[a] = is_mapped;
		for (int b = 0; b < w->size; b++)
			c->counts[a][b] = 1500;
	}
	world_prepare(w, c, &seed);
}

static void abort_all(const struct world *w)
{
	for (int r = 0; r < w->size; r++)
		world_abort(w->hosts[r], 1);
}

static void wait_all(const struct world *w, int but)
{
	for (int r = 0; r < w->size; r++) {
		if (r == but)
			continue;
		launch_wait(&launches[r]);
		for (unsigned c = 0; c < launches[r].blocks; c++)
			assert_int_equal(w->hosts[r]->finished[c], FIRST_EPOCH + 1);
	}
}

/* What the absent rank would have written before it died: nothing, or its greetings. */
static void greet_by_hand(const struct world *w, const struct world_call *call, int dead)
{
	struct packets_args packets;
	struct lines_args lines;

	world_args(w, call, dead, &packets, &lines);
	for (int r = 0; r < w->size; r++)
		for (unsigned c = 0; c < call->blocks; c++) {
			struct channel_segment *segment = w->segments[r];
			struct channel_greeting *g =
				&segment->channels[c].greetings[(FIRST_EPOCH + 1) & 1][dead];
			const uint64_t fields[GREETING_FIELDS] = {
				lines.send_place, lines.recv_place, lines.send_bytes[r],
				lines.send_bytes[r]};
			const uint64_t epoch = (uint64_t)(FIRST_EPOCH + 1) << 32;

			for (int f = 0; f < GREETING_FIELDS; f++)
				g->fields[f] = (struct packet){
					{epoch | (uint32_t)fields[f], epoch | fields[f] >> 32}};
			g->word = epoch | w->fingerprints[dead];
		}
}

/* Of this call: the last step that a rank has told another; 0: none. */
static uint32_t step_told(const struct world *w, int from, int to, unsigned channel)
{
	const struct channel_segment *segment = w->segments[to];
	uint64_t told = word(&segment->channels[channel].steps[from]);

	return told >> 32 == FIRST_EPOCH + 1 ? (uint32_t)told : 0;
}

static void tell_step(const struct world *w, int from, int to, unsigned channel, uint32_t step)
{
	struct channel_segment *segment = w->segments[to];

	atomic_store((_Atomic uint64_t *)&segment->channels[channel].steps[from],
		     (uint64_t)(FIRST_EPOCH + 1) << 32 | step);
}

/* All but one start; the host sees that their kernels run and none ends, and aborts. */
static void check_absent(enum call_kind kind, bool by_packets, bool is_mapped, bool greets)
{
	struct world w;
	struct world_call call;
	const int absent = 1;

	world_create(&w, 4, FIRST_EPOCH);
	make_call(&w, &call, kind, by_packets, is_mapped);
	if (greets)
		greet_by_hand(&w, &call, absent);
	for (int r = 0; r < w.size; r++)
		if (r != absent)
			world_start(&w, &call, r, &launches[r], &arguments[r]);
	for (int r = 0; r < w.size; r++)
		for (unsigned c = 0; r != absent && c < call.blocks; c++) {
			while (word(&w.hosts[r]->started[c]) != FIRST_EPOCH + 1)
				give_way();
			assert_int_equal(word(&w.hosts[r]->finished[c]), 0);
		}
	abort_all(&w);
	wait_all(&w, absent);
	for (int r = 0; r < w.size; r++)
		assert_int_equal(w.hosts[r]->error, 0);
	world_release(&w, &call);
	world_destroy(&w);
}

static void a_rank_never_comes(void **state)
{
	check_absent(CALL_ALL_REDUCE, true, true, false);
	check_absent(CALL_ALL_GATHER, true, true, false);
	check_absent(CALL_ALL_REDUCE, false, true, false);
	check_absent(CALL_ALL_REDUCE, false, false, false);
	check_absent(CALL_ALL_TO_ALL, false, false, false);
}

/* The others wait for its packets, its steps, or its leave. */
static void a_rank_dies_after_its_greeting(void **state)
{
	check_absent(CALL_ALL_REDUCE, true, true, true);
	check_absent(CALL_ALL_TO_ALL, true, true, true);
	check_absent(CALL_ALL_REDUCE, false, false, true);
	check_absent(CALL_REDUCE_SCATTER, false, false, true);
	check_absent(CALL_ALL_GATHER, false, true, true);
}

/* A kernel that its stream comes to after the failure leaves the buffers alone, though the others
 * had come: those may have given theirs back. */
static void check_late(enum call_kind kind, bool by_packets, bool is_mapped)
{
	struct world w;
	struct world_call call;

	world_create(&w, 4, FIRST_EPOCH);
	make_call(&w, &call, kind, by_packets, is_mapped);
	char *before = malloc(call.recv_bytes[0]);
	memcpy(before, call.recv[0], call.recv_bytes[0]);
	for (int r = 1; r < w.size; r++)
		world_start(&w, &call, r, &launches[r], &arguments[r]);
	for (int r = 1; r < w.size; r++)
		for (unsigned c = 0; c < call.blocks; c++)
			while (word(&w.hosts[r]->started[c]) != FIRST_EPOCH + 1)
				give_way();
	abort_all(&w);
	wait_all(&w, 0);
	world_start(&w, &call, 0, &launches[0], &arguments[0]);
	launch_wait(&launches[0]);
	assert_memory_equal(before, call.recv[0], call.recv_bytes[0]);
	free(before);
	world_release(&w, &call);
	world_destroy(&w);
}

/* The same of a rank whose host does not know of the failure yet: the others have given up. */
static void check_unaware(enum call_kind kind)
{
	struct world w;
	struct world_call call;

	world_create(&w, 4, FIRST_EPOCH);
	make_call(&w, &call, kind, false, true);
	char *before = malloc(call.recv_bytes[0]);
	memcpy(before, call.recv[0], call.recv_bytes[0]);
	for (int r = 1; r < w.size; r++) {
		world_start(&w, &call, r, &launches[r], &arguments[r]);
		world_abort(w.hosts[r], 1);
	}
	wait_all(&w, 0);
	world_start(&w, &call, 0, &launches[0], &arguments[0]);
	for (unsigned c = 0; c < call.blocks; c++)
		while (step_told(&w, 0, 1, c) != STEP_ABANDON)
			give_way();
	assert_int_equal(word(&w.hosts[0]->finished[0]), 0); /* its host would take it for done */
	world_abort(w.hosts[0], 1);
	launch_wait(&launches[0]);
	assert_memory_equal(before, call.recv[0], call.recv_bytes[0]);
	free(before);
	world_release(&w, &call);
	world_destroy(&w);
}

/* Rank 1 has arrived, and reads rank 0's buffer, when the host of rank 0 aborts. That buffer is the
 * caller's again when the kernel has ended: not before rank 1 leaves, unless that takes so long
 * that it may have died. */
static void check_reader(enum call_kind kind)
{
	struct world w;
	struct world_call call;

	world_create(&w, 2, FIRST_EPOCH);
	make_call(&w, &call, kind, false, true);
	greet_by_hand(&w, &call, 1);
	world_start(&w, &call, 0, &launches[0], &arguments[0]);
	for (unsigned c = 0; c < call.blocks; c++)
		while (step_told(&w, 0, 1, c) != STEP_LEAVE)
			give_way();
	uint64_t aborted_ns = give_way_now();
	world_abort(w.hosts[0], 1);
	for (int i = 0; i < 500; i++)
		give_way();
	for (unsigned c = 0; c < call.blocks; c++) {
		bool has_ended = word(&w.hosts[0]->finished[c]) != 0;
		assert_true(!has_ended || give_way_now() - aborted_ns >= ABANDON_MOST_NS);
		tell_step(&w, 1, 0, c, STEP_LEAVE);
	}
	launch_wait(&launches[0]);
	world_release(&w, &call);
	world_destroy(&w);
}

static void buffers_are_read_until_the_kernel_ends(void **state)
{
	check_unaware(CALL_ALL_GATHER);
	check_unaware(CALL_ALL_REDUCE);
	check_reader(CALL_ALL_GATHER);
	check_reader(CALL_ALL_REDUCE);
}

static void a_rank_comes_after_the_failure(void **state)
{
	check_late(CALL_ALL_GATHER, true, true);
	check_late(CALL_ALL_REDUCE, true, true);
	check_late(CALL_ALL_GATHER, false, true);
	check_late(CALL_ALL_REDUCE, false, true);
	check_late(CALL_ALL_REDUCE, false, false);
}

static void check_record(const struct world *w, int r, int odd)
{
	const struct channel_host *h = w->hosts[r];

	assert_int_equal(h->error, CHANNEL_OTHER_CALL);
	assert_int_equal(h->aborts[0].word, 1);
	if (r == odd)
		assert_int_not_equal(h->peer, odd);
	else
		assert_int_equal(h->peer, odd);
	assert_int_equal(h->fingerprint, w->fingerprints[h->peer]);
}

/* Rank `odd` makes the second call; nobody but the kernels ends anything. */
static void check_mismatch(bool by_packets, bool odd_by_packets, unsigned odd_blocks)
{
	struct world w;
	struct world_call calls[2];
	const int odd = 2;

	world_create(&w, 5, FIRST_EPOCH);
	make_call(&w, &calls[0], CALL_ALL_REDUCE, by_packets, true);
	make_call(&w, &calls[1], CALL_ALL_GATHER, odd_by_packets, false);
	calls[1].blocks = odd_blocks;
	w.fingerprints[odd] = 0x1234567;
	for (int r = 0; r < w.size; r++)
		world_start(&w, &calls[r == odd], r, &launches[r], &arguments[r]);
	wait_all(&w, -1);
	for (int r = 0; r < w.size; r++)
		check_record(&w, r, odd);
	world_release(&w, &calls[0]);
	world_release(&w, &calls[1]);
	world_destroy(&w);
}

static void ranks_make_different_calls(void **state)
{
	for (int round = 0; round < 8; round++) {
		check_mismatch(true, true, 2);
		check_mismatch(false, false, 2);
		check_mismatch(true, false, 2);
		check_mismatch(false, true, 2);
		check_mismatch(true, true, 1);
		check_mismatch(false, false, 3);
	}
}

/* The host has read it, and may read it again. */
static void the_first_failure_stays(void **state)
{
	struct world w;
	struct world_call call;

	world_create(&w, 4, FIRST_EPOCH);
	make_call(&w, &call, CALL_ALL_REDUCE, true, true);
	for (int odd = 2; odd >= 1; odd--) {
		for (int r = 0; r < w.size; r++) {
			world_abort(w.hosts[r], 0);
			w.fingerprints[r] = r == odd ? 77 : 78;
		}
		for (int r = 0; r < w.size; r++)
			world_start(&w, &call, r, &launches[r], &arguments[r]);
		for (int r = 0; r < w.size; r++)
			launch_wait(&launches[r]);
		assert_int_equal(w.hosts[0]->error, CHANNEL_OTHER_CALL);
		assert_int_equal(w.hosts[0]->peer, 2);
		assert_int_equal(w.hosts[0]->aborts[0].word, 1);
	}
	world_release(&w, &call);
	world_destroy(&w);
}

/* Rank 1 expects fewer bytes of rank 0 than that sends; it has the record, and its host ends the
 * others. */
static void ranks_differ_in_bytes(void **state)
{
	struct world w;
	struct world_call call;

	world_create(&w, 3, FIRST_EPOCH);
	make_call(&w, &call, CALL_ALL_TO_ALLV, false, true);
	for (int r = 0; r < w.size; r++) {
		call.counts[0][1] = r == 1 ? 1499 : 1500;
		world_start(&w, &call, r, &launches[r], &arguments[r]);
	}
	while (word(&w.hosts[1]->error) == 0)
		give_way();
	abort_all(&w);
	wait_all(&w, -1);
	assert_int_equal(w.hosts[1]->error, CHANNEL_OTHER_BYTES);
	assert_int_equal(w.hosts[1]->peer, 0);
	assert_int_equal(w.hosts[1]->bytes, 6000);
	assert_int_equal(w.hosts[0]->error, 0);
	assert_int_equal(w.hosts[2]->error, 0);
	world_release(&w, &call);
	world_destroy(&w);
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_never_comes),
		cmocka_unit_test(a_rank_dies_after_its_greeting),
		cmocka_unit_test(a_rank_comes_after_the_failure),
		cmocka_unit_test(buffers_are_read_until_the_kernel_ends),
		cmocka_unit_test(ranks_make_different_calls),
		cmocka_unit_test(the_first_failure_stays),
		cmocka_unit_test(ranks_differ_in_bytes),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

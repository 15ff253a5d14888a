/* slow: 6 s */
/* Breaks when kernels of sends and receives give wrong bytes, in the wrong order, or do not end:
 * any messages between 2 to 8 ranks at each rank's own pace, more of them than mailboxes hold, with
 * unequal numbers of blocks; and where a peer never comes, or its message is another. */
#include "channel_world.h"
#include "cuda/kernels/give_way.h"
#include "cuda/messages.h"
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

#define CALLS    6  /* of a rank's program       */
#define MESSAGES 16 /* of all ranks in one call  */
#define MAILBOX  ((uint64_t)MESSAGE_LANES * MESSAGE_SLOTS * MESSAGE_SLOT_BYTES)

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	return random_below(&seed, n);
}

static uint64_t word(const uint64_t *p)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)p, memory_order_acquire);
}

/* ---- random programs ---- */

struct transfer {
	int from, to;
	uint64_t bytes;
	char *sent, *got, *expected; /* in memory, of which expected is the start */
};

/* A call of all ranks: each has a kernel for its part, unless it has none. */
struct exchange {
	struct transfer transfers[MESSAGES];
	int n;
	unsigned blocks[WORLD_RANKS]; /* 0: as many as the product chooses */
};

static uint64_t draw_bytes(void)
{
	switch (draw(8)) {
	case 0:
		return 0;
	case 1:
		return MESSAGE_SLOT_BYTES - 1 + draw(3);
	case 2:
		return MESSAGE_LANES * MESSAGE_SLOT_BYTES - 1 + draw(3);
	case 3:
		return draw(MAILBOX + MAILBOX / 4);
	case 4:
		return draw(200000);
	default:
		return draw(400);
	}
}

static void draw_exchange(const struct world *w, struct exchange *e)
{
	e->n = 1 + (int)draw(MESSAGES);
	for (int i = 0; i < e->n; i++) {
		struct transfer *t = &e->transfers[i];
		t->from = (int)draw((uint64_t)w->size);
		t->to = (int)draw((uint64_t)w->size);
		t->bytes = draw_bytes();
		t->expected = malloc(3 * t->bytes + 64);
		t->sent = t->expected + t->bytes + draw(17);
		t->got = t->sent + t->bytes + draw(17);
		for (uint64_t b = 0; b < t->bytes; b++)
			t->expected[b] = t->sent[b] = (char)random_next(&seed);
		memset(t->got, 0x5a, t->bytes);
	}
	for (int r = 0; r < w->size; r++)
		e->blocks[r] = draw(2) ? 1 + (unsigned)draw(LAUNCH_BLOCKS) : 0;
}

/* The part of a rank in an exchange. Returns how many messages it has. */
static unsigned part_of(const struct exchange *e, int rank, struct cuda_message *messages)
{
	unsigned n = 0;

	for (int i = 0; i < e->n; i++) {
		const struct transfer *t = &e->transfers[i];
		if (t->from == rank)
			messages[n++] = (struct cuda_message){true, t->to, t->sent, t->bytes, 77};
		if (t->to == rank)
			messages[n++] = (struct cuda_message){false, t->from, t->got, t->bytes, 77};
	}
	return n;
}

/* Returns whether there is something to wait for. */
static bool start(const struct world *w, const struct exchange *e, int rank,
		  struct messages_args *args, struct launch *launch)
{
	struct cuda_message messages[2 * MESSAGES];
	unsigned n = part_of(e, rank, messages), blocks;

	if (n == 0)
		return false;
	memset(args, 0, sizeof *args);
	blocks = cuda_messages_fill(args, messages, n, LAUNCH_BLOCKS);
	world_channel_args(w, rank, &args->channel);
	launch_start(launch, launch_messages_block, args,
		     e->blocks[rank] ? e->blocks[rank] : blocks);
	return true;
}

struct program {
	const struct world *world;
	const struct exchange *exchanges;
	int rank, n, wrong;
	pthread_t thread;
};

/* When its call has ended a rank has what it gets, and uses its buffers for something else. */
static int use_buffers(const struct exchange *e, int rank)
{
	int wrong = 0;

	for (int i = 0; i < e->n; i++) {
		const struct transfer *t = &e->transfers[i];
		if (t->to == rank)
			wrong += memcmp(t->got, t->expected, t->bytes) != 0;
		if (t->from == rank)
			memset(t->sent, 0x33, t->bytes);
	}
	return wrong;
}

static void *run_program(void *arg)
{
	struct program *p = arg;

	for (int i = 0; i < p->n; i++) {
		struct messages_args args;
		struct launch launch;
		if (!start(p->world, &p->exchanges[i], p->rank, &args, &launch))
			continue;
		launch_wait(&launch);
		p->wrong += use_buffers(&p->exchanges[i], p->rank);
	}
	return NULL;
}

static void run(const struct world *w, const struct exchange *exchanges, int n)
{
	struct program programs[WORLD_RANKS];

	for (int r = 0; r < w->size; r++) {
		programs[r] = (struct program){w, exchanges, r, n, 0, 0};
		assert_int_equal(
			pthread_create(&programs[r].thread, NULL, run_program, &programs[r]), 0);
	}
	for (int r = 0; r < w->size; r++) {
		pthread_join(programs[r].thread, NULL);
		assert_int_equal(programs[r].wrong, 0);
	}
}

static void check_words(const struct world *w)
{
	for (int r = 0; r < w->size; r++) {
		const struct channel_host *h = w->hosts[r];
		assert_int_equal(h->aborts[0].word, 0);
		assert_int_equal(h->error, 0);
		for (int c = 0; c < CHANNELS_MOST; c++)
			assert_int_equal(h->messages_started[c], h->messages_finished[c]);
	}
}

static struct message_box *box_of(const struct world *w, int rank, int peer)
{
	char *segment = w->segments[rank];

	return (struct message_box *)(segment + channel_boxes_offset((uint32_t)w->size)) + peer;
}

/* As if so many chunks had gone through each lane. */
static void set_counts(const struct world *w, uint64_t count)
{
	for (int r = 0; r < w->size; r++)
		for (int p = 0; p < w->size; p++)
			for (int l = 0; l < MESSAGE_LANES; l++) {
				struct message_box *box = box_of(w, r, p);
				box->sent[l] = box->seen[l] = box->taken[l] = count;
			}
}

static void run_worlds(uint64_t count)
{
	static struct exchange exchanges[CALLS];
	int rounds = whole_or(4, 2, 1);

	for (int i = 0; i < rounds; i++) {
		struct world w;
		world_create(&w, 2 + (int)draw(WORLD_RANKS - 1), 0);
		set_counts(&w, count);
		for (int k = 0; k < CALLS; k++)
			draw_exchange(&w, &exchanges[k]);
		run(&w, exchanges, CALLS);
		check_words(&w);
		for (int k = 0; k < CALLS; k++)
			for (int m = 0; m < exchanges[k].n; m++)
				free(exchanges[k].transfers[m].expected);
		world_destroy(&w);
	}
}

static void any_messages(void **state)
{
	run_worlds(0);
}

static void counts_beyond_32_bits(void **state)
{
	run_worlds(UINT32_MAX - draw(20));
}

/* ---- one message at a time ---- */

static struct messages_args arguments[WORLD_RANKS];
static struct launch launches[WORLD_RANKS];

static void launch_one(const struct world *w, int rank, const struct cuda_message *message)
{
	unsigned blocks = cuda_messages_fill(&arguments[rank], message, 1, 4);

	world_channel_args(w, rank, &arguments[rank].channel);
	launch_start(&launches[rank], launch_messages_block, &arguments[rank], blocks);
}

/* What fits into the mailbox is sent without the receiver, once. */
static void a_mailbox_ends_a_send(void **state)
{
	struct world w;
	char *out = malloc(MAILBOX), *in = malloc(MAILBOX);
	struct cuda_message sent = {true, 1, out, MAILBOX, 1}, got = {false, 0, in, MAILBOX, 1};

	memset(out, 7, MAILBOX);
	world_create(&w, 2, 0);
	launch_one(&w, 0, &sent);
	launch_wait(&launches[0]);
	memset(out, 8, MAILBOX);
	launch_one(&w, 0, &sent);
	while (word(&w.hosts[0]->messages_started[0]) != 2)
		give_way();
	for (int byte = 7; byte <= 8; byte++) {
		assert_int_equal(word(&w.hosts[0]->messages_finished[0]), byte - 6);
		launch_one(&w, 1, &got);
		launch_wait(&launches[1]);
		assert_int_equal(in[0], byte);
		assert_memory_equal(in, in + 1, MAILBOX - 1);
		if (byte == 7)
			launch_wait(&launches[0]);
	}
	check_words(&w);
	world_destroy(&w);
	free(out);
	free(in);
}

static void abort_all(const struct world *w)
{
	for (int r = 0; r < w->size; r++)
		world_abort(w->hosts[r], 1);
}

/* The peer never comes: the kernel runs until the host aborts. */
static void check_absent(bool sends)
{
	struct world w;
	char *memory = calloc(2, MAILBOX);
	struct cuda_message message = {sends, 1, memory, MAILBOX + 1, 1};

	world_create(&w, 3, 0);
	launch_one(&w, 0, &message);
	for (unsigned b = 0; b < launches[0].blocks; b++) {
		while (word(&w.hosts[0]->messages_started[b]) != 1)
			give_way();
	}
	if (sends) /* lane 0 is longer than its slots: so its block waits */
		while (word(&box_of(&w, 0, 1)->sent[0]) != MESSAGE_SLOTS)
			give_way();
	assert_int_equal(word(&w.hosts[0]->messages_finished[0]), 0);
	abort_all(&w);
	launch_wait(&launches[0]);
	assert_int_equal(w.hosts[0]->messages_finished[0], 1);
	assert_int_equal(w.hosts[0]->error, 0);
	world_destroy(&w);
	free(memory);
}

static void a_peer_never_comes(void **state)
{
	check_absent(true);
	check_absent(false);
}

/* A kernel that its stream comes to after the failure leaves the buffer alone. */
static void a_recv_comes_after_the_failure(void **state)
{
	struct world w;
	char out[400], in[400], before[400];
	struct cuda_message sent = {true, 1, out, 400, 1}, got = {false, 0, in, 400, 1};

	memset(out, 7, sizeof out);
	memset(in, 6, sizeof in);
	memcpy(before, in, sizeof in);
	world_create(&w, 2, 0);
	launch_one(&w, 0, &sent);
	launch_wait(&launches[0]);
	abort_all(&w);
	launch_one(&w, 1, &got);
	launch_wait(&launches[1]);
	assert_memory_equal(in, before, sizeof in);
	assert_int_equal(box_of(&w, 1, 0)->taken[0], 0);
	world_destroy(&w);
}

/* Rank 2 sends something else than rank 0 expects: the record says who, and how much. */
static void check_other(uint64_t bytes, uint64_t fingerprint)
{
	struct world w;
	char out[800], in[400], before[400];
	struct cuda_message sent = {true, 0, out, bytes, fingerprint}, got = {false, 2, in, 400, 1};

	memset(out, 7, sizeof out);
	memset(in, 6, sizeof in);
	memcpy(before, in, sizeof in);
	world_create(&w, 3, 0);
	launch_one(&w, 0, &got);
	launch_one(&w, 2, &sent);
	launch_wait(&launches[0]);
	launch_wait(&launches[2]);
	assert_int_equal(w.hosts[0]->error, CHANNEL_OTHER_MESSAGE);
	assert_int_equal(w.hosts[0]->peer, 2);
	assert_int_equal(w.hosts[0]->bytes, bytes);
	assert_int_equal(w.hosts[0]->expected, 400);
	assert_int_equal(w.hosts[0]->aborts[0].word, 1);
	assert_int_equal(w.hosts[2]->error, 0);
	assert_memory_equal(in, before, sizeof in);
	world_destroy(&w);
}

static void messages_differ(void **state)
{
	check_other(396, 1);
	check_other(800, 1);
	check_other(0, 1);
	check_other(400, 2);
}

/* As many as fit into the arguments, in few lanes and one block: none overtakes another. */
static void many_to_one_peer(void **state)
{
	struct world w;
	struct cuda_message sent[MESSAGES_MOST], got[MESSAGES_MOST];
	uint32_t out[MESSAGES_MOST], in[MESSAGES_MOST];

	for (uint32_t i = 0; i < MESSAGES_MOST; i++) {
		out[i] = i;
		sent[i] = (struct cuda_message){true, 1, &out[i], 4, 1};
		got[i] = (struct cuda_message){false, 0, &in[i], 4, 1};
	}
	world_create(&w, 2, 0);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(
			cuda_messages_fill(&arguments[r], r ? got : sent, MESSAGES_MOST, 64), 1);
		world_channel_args(&w, r, &arguments[r].channel);
		launch_start(&launches[r], launch_messages_block, &arguments[r], 1);
	}
	for (int r = 0; r < 2; r++)
		launch_wait(&launches[r]);
	assert_memory_equal(in, out, sizeof in);
	check_words(&w);
	world_destroy(&w);
}

int main(void)
{
	const char *given = getenv("SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_messages),
		cmocka_unit_test(counts_beyond_32_bits),
		cmocka_unit_test(a_mailbox_ends_a_send),
		cmocka_unit_test(a_peer_never_comes),
		cmocka_unit_test(a_recv_comes_after_the_failure),
		cmocka_unit_test(messages_differ),
		cmocka_unit_test(many_to_one_peer),
	};

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	test_limit(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

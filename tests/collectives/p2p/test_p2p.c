/* no_tsan: it has one thread */
/* Without this a send could meet another recv than the one it is for, lose bytes, wait behind
 * another tag's, or make a receiver keep more than its bound. Over the simulated network: any order
 * of delivery, by seed. */
#include "sim_messages.h"

#include "collectives/p2p/p2p_internal.h"
#include "tests/core/memory/proof_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define MESSAGES  120
#define ANY_TAG   9
#define ANY_BYTES 40

struct message {
	int from, to, tag;
	size_t bytes;
	bool is_sent, is_received, send_proof, recv_proof;
	uint8_t *out, *in;
	int source;
	struct tutti_work *send, *recv;
};

static size_t random_bytes(void)
{
	static const size_t near[] = {0, 1, 255, 256, 257, 2048, 2049, 16384, 16385, 70000};
	uint64_t r = sim_draw(100);
	if (r < 3)
		return P2P_PIECE_BYTES * (1 + sim_draw(3)) + sim_draw(3) - 1;
	return r < 40 ? near[sim_draw(10)] : r < 80 ? sim_draw(300) : sim_draw(20000);
}

static uint8_t byte_of(const struct message *all, const struct message *m, size_t i)
{
	return (uint8_t)((uint64_t)(m - all + 1) * 131 + i * 7 + (i >> 8));
}

static void *room(bool proof, size_t bytes)
{
	return proof ? proof_alloc(bytes + 1) : calloc(1, bytes + 1);
}

static void give_back(bool proof, void *ptr)
{
	if (proof)
		proof_free(ptr);
	else
		free(ptr);
}

static void draw(struct message *all, int ranks, bool proof)
{
	for (int i = 0; i < MESSAGES; i++) {
		struct message *m = &all[i];
		*m = (struct message){.from = (int)sim_draw((uint64_t)ranks),
				      .to = (int)sim_draw((uint64_t)ranks),
				      .tag = sim_draw(6) ? (int)sim_draw(3) : ANY_TAG,
				      .source = -7};
		m->bytes = m->tag == ANY_TAG ? ANY_BYTES : random_bytes();
		m->send_proof = proof && sim_draw(2);
		m->recv_proof = proof && sim_draw(2);
		m->out = room(m->send_proof, m->bytes);
		m->in = room(m->recv_proof, m->bytes);
		uint8_t *data = malloc(m->bytes + 1);
		for (size_t b = 0; b < m->bytes; b++)
			data[b] = byte_of(all, m, b);
		if (m->send_proof)
			proof_write(m->out, data, m->bytes);
		else
			memcpy(m->out, data, m->bytes);
		free(data);
	}
}

static bool same_queue(const struct message *a, const struct message *b)
{
	return a->from == b->from && a->to == b->to && a->tag == b->tag;
}

/* The first one of m's queue whose send, or recv, is still to be issued. */
static struct message *first_of(struct message *all, const struct message *m, bool sends)
{
	for (int i = 0; i < MESSAGES; i++)
		if (same_queue(&all[i], m) && !(sends ? all[i].is_sent : all[i].is_received))
			return &all[i];
	return NULL;
}

static void issue_one(struct sim_ranks *ranks, struct message *all)
{
	bool sends = sim_draw(2);
	struct message *m = first_of(all, &all[sim_draw(MESSAGES)], sends);
	if (!m)
		return;
	struct sim_call c = {.side = sends ? P2P_SEND : P2P_RECV,
			     .buf = sends ? m->out : m->in,
			     .count = m->bytes,
			     .dtype = TUTTI_U8,
			     .peer = sends               ? m->to
				     : m->tag == ANY_TAG ? TUTTI_ANY
							 : m->from,
			     .tag = m->tag,
			     .source = sends ? NULL : &m->source,
			     .proof = sends ? m->send_proof : m->recv_proof};
	if (sends) {
		m->is_sent = true;
		m->send = sim_issue(ranks->engines[m->from], &c);
	} else {
		m->is_received = true;
		m->recv = sim_issue(ranks->engines[m->to], &c);
	}
}

static bool all_issued(const struct message *all)
{
	for (int i = 0; i < MESSAGES; i++)
		if (!all[i].is_sent || !all[i].is_received)
			return false;
	return true;
}

/* What a recv must have got: its own queue's message; from anybody, one of its source's, each once.
 */
static const char *check_message(const struct message *all, const struct message *m, bool *taken)
{
	const struct message *want = m;
	uint8_t *got = malloc(m->bytes + 1);
	const char *wrong = NULL;

	if (m->recv_proof)
		proof_read(got, m->in, m->bytes);
	else
		memcpy(got, m->in, m->bytes);
	for (int i = 0; m->tag == ANY_TAG && i < MESSAGES; i++) {
		want = &all[i];
		if (want->to == m->to && want->tag == ANY_TAG && want->from == m->source &&
		    !taken[i] && byte_of(all, want, 0) == got[0])
			break;
		want = NULL;
	}
	if (!want || m->source != want->from)
		wrong = "a source is wrong";
	for (size_t b = 0; !wrong && b < m->bytes; b++)
		if (got[b] != byte_of(all, want, b))
			wrong = "bytes are wrong";
	if (want)
		taken[want - all] = true;
	free(got);
	return wrong;
}

static void check_all(struct message *all, int ranks, uint64_t seed)
{
	bool taken[MESSAGES] = {false};
	for (int i = 0; i < MESSAGES; i++) {
		struct message *m = &all[i];
		tutti_status sent = sim_ended(m->send), received = sim_ended(m->recv);
		const char *wrong = sent != TUTTI_OK       ? "its send did not end well"
				    : received != TUTTI_OK ? "its recv did not end well"
							   : check_message(all, m, taken);
		if (wrong)
			fail_msg("%d ranks, seed %llu: message %d (%d to %d, tag %d, %zu bytes): "
				 "%s (%d, %d)",
				 ranks, (unsigned long long)seed, i, m->from, m->to, m->tag,
				 m->bytes, wrong, (int)sent, (int)received);
	}
	for (int i = 0; i < MESSAGES; i++) {
		give_back(all[i].send_proof, all[i].out);
		give_back(all[i].recv_proof, all[i].in);
	}
}

static void random_program(int n, uint64_t seed, bool proof)
{
	static struct message all[MESSAGES];
	struct sim_ranks ranks;
	int who[2];

	sim_messages_open(&ranks, n, seed);
	draw(all, n, proof);
	while (!all_issued(all)) {
		for (uint64_t k = sim_draw(8); k > 0; k--)
			issue_one(&ranks, all);
		for (uint64_t k = sim_draw(6); k > 0 && sim_step(ranks.sim, who); k--) {
			engine_progress(ranks.engines[who[0]]);
			engine_progress(ranks.engines[who[1]]);
		}
	}
	sim_ranks_run(&ranks);
	check_all(all, n, seed);
	sim_ranks_close(&ranks);
	assert_int_equal(proof_allocated(), 0);
}

static void test_random_programs(void **arg)
{
	(void)arg;
	for (uint64_t seed = 1; seed <= 60; seed++)
		random_program(1 + (int)(seed % 8), seed * 7919, false);
}

static void test_random_programs_staged(void **arg)
{
	(void)arg;
	assert_int_equal(proof_kind_use(20261120), TUTTI_OK);
	for (uint64_t seed = 1; seed <= 16; seed++)
		random_program(1 + (int)(seed % 8), seed * 104729, true);
}

/* Messages of tag 1 that nobody asks for, short and long, do not hold up tag 2. */
static void test_tags_do_not_wait(void **arg)
{
	enum { FLOOD = 300 };
	static uint8_t big[FLOOD][20000], got[40000];
	struct tutti_work *sends[FLOOD];
	struct sim_ranks ranks;
	(void)arg;

	sim_messages_open(&ranks, 2, 5);
	for (int i = 0; i < FLOOD; i++)
		sends[i] = sim_send(ranks.engines[0], big[i], i % 2 ? 20000 : 100, 1, 1);
	memset(got, 0, sizeof got);
	uint8_t word[] = "and yet it comes through";
	struct tutti_work *other = sim_send(ranks.engines[0], word, sizeof word, 1, 2);
	struct tutti_work *recv = sim_recv(ranks.engines[1], got, sizeof word, 0, 2);
	sim_ranks_run(&ranks);
	assert_int_equal(sim_ended(recv), TUTTI_OK);
	assert_int_equal(sim_ended(other), TUTTI_OK);
	assert_memory_equal(got, word, sizeof word);
	assert_false(sim_is_done(sends[FLOOD - 1]));
	for (int i = 0; i < FLOOD; i++)
		work_release(sim_recv(ranks.engines[1], got, i % 2 ? 20000 : 100, 0, 1));
	sim_ranks_run(&ranks);
	for (int i = 0; i < FLOOD; i++)
		assert_int_equal(sim_ended(sends[i]), TUTTI_OK);
	sim_ranks_close(&ranks);
}

/* How many payload bytes lie at a receiver that nobody has asked for. */
static size_t kept_bytes(const struct engine *e, int peer)
{
	size_t bytes = 0;
	const struct p2p_peer *p = e->p2p ? e->p2p->peers[peer] : NULL;
	for (uint32_t i = 0; p && p->kept && i < P2P_SLOTS; i++)
		if (p->kept[i].is_used)
			bytes += p2p_classes[p2p_class_of(i)].bytes;
	return bytes;
}

/* However much is sent to a rank that receives nothing of it, it keeps at most 256 KiB a peer, and
 * short sends are done at once while there is credit. */
static void test_flood_is_bounded(void **arg)
{
	enum { SENDERS = 3, EACH = 200 };
	static uint8_t data[SENDERS][EACH][12000];
	struct tutti_work *sends[SENDERS][EACH], *recv, *wake;
	struct sim_ranks ranks;
	uint8_t word = 0;
	int at_once = 0;
	(void)arg;

	sim_messages_open(&ranks, SENDERS + 1, 77);
	recv = sim_recv(ranks.engines[0], &word, 1, TUTTI_ANY, 1000);
	for (int s = 0; s < SENDERS; s++)
		for (int i = 0; i < EACH; i++) {
			size_t bytes = i % 3 == 0 ? 12000 : i % 3 == 1 ? 1000 : 10;
			memset(data[s][i], s * 50 + i, bytes);
			sends[s][i] = sim_send(ranks.engines[s + 1], data[s][i], bytes, 0, i);
			at_once += sim_is_done(sends[s][i]);
		}
	assert_true(at_once >= SENDERS * 100);
	sim_ranks_run(&ranks);
	for (int s = 0; s < SENDERS; s++) {
		size_t kept = kept_bytes(ranks.engines[0], s + 1);
		assert_true(kept >= 200000 && kept <= 262144);
	}
	for (int i = EACH - 1; i >= 0; i--)
		for (int s = 0; s < SENDERS; s++) {
			size_t bytes = i % 3 == 0 ? 12000 : i % 3 == 1 ? 1000 : 10;
			static uint8_t got[12000];
			struct tutti_work *work = sim_recv(ranks.engines[0], got, bytes, s + 1, i);
			sim_ranks_run(&ranks);
			assert_int_equal(sim_ended(work), TUTTI_OK);
			assert_memory_equal(got, data[s][i], bytes);
			assert_int_equal(sim_ended(sends[s][i]), TUTTI_OK);
		}
	for (int s = 0; s < SENDERS; s++)
		assert_int_equal(kept_bytes(ranks.engines[0], s + 1), 0);
	wake = sim_send(ranks.engines[1], &word, 1, 0, 1000);
	sim_ranks_run(&ranks);
	assert_int_equal(sim_ended(wake), TUTTI_OK);
	assert_int_equal(sim_ended(recv), TUTTI_OK);
	sim_ranks_close(&ranks);
}

/* Slots come back: any number of short messages is done at once as long as the peer receives them.
 */
static void test_credit_returns(void **arg)
{
	struct sim_ranks ranks;
	uint8_t out[16384], in[16384];
	(void)arg;

	sim_messages_open(&ranks, 2, 3);
	for (int i = 0; i < 2000; i++) {
		size_t bytes = i % 3 == 0 ? 16384 : i % 3 == 1 ? 1500 : 8;
		memset(out, i, bytes);
		struct tutti_work *send = sim_send(ranks.engines[0], out, bytes, 1, 0);
		assert_true(sim_is_done(send));
		memset(out, 0xee, bytes); /* it was copied */
		struct tutti_work *recv = sim_recv(ranks.engines[1], in, bytes, 0, 0);
		sim_ranks_run(&ranks);
		assert_int_equal(sim_ended(send), TUTTI_OK);
		assert_int_equal(sim_ended(recv), TUTTI_OK);
		assert_true(in[0] == (uint8_t)i && in[bytes - 1] == (uint8_t)i);
	}
	sim_ranks_close(&ranks);
}

/* Senders that flood the same recvs from any rank all get their turn. */
static void test_any_is_fair(void **arg)
{
	enum { SENDERS = 5, EACH = 60 };
	struct sim_ranks ranks;
	struct tutti_work *sends[SENDERS][EACH];
	uint8_t words[SENDERS][EACH], got;
	int served[SENDERS + 1] = {0}, rounds = 0;
	(void)arg;

	sim_messages_open(&ranks, SENDERS + 1, 99);
	for (int i = 0; i < EACH; i++)
		for (int s = 0; s < SENDERS; s++) {
			words[s][i] = (uint8_t)i;
			sends[s][i] = sim_send(ranks.engines[s + 1], &words[s][i], 1, 0, 4);
		}
	for (int i = 0; i < SENDERS * EACH; i++) {
		int source = -1;
		struct sim_call c = {P2P_RECV, &got, 1, TUTTI_U8, TUTTI_ANY, 4, &source, 0, false};
		struct tutti_work *work = sim_issue(ranks.engines[0], &c);
		sim_ranks_run(&ranks);
		assert_int_equal(sim_ended(work), TUTTI_OK);
		assert_in_range(source, 1, SENDERS);
		assert_int_equal(got, served[source]); /* in its order */
		served[source]++;
		if (served[source] == EACH && rounds == 0)
			for (int s = rounds = 1; s <= SENDERS; s++)
				assert_true(served[s] >= EACH / 4);
	}
	for (int i = 0; i < EACH; i++)
		for (int s = 0; s < SENDERS; s++)
			assert_int_equal(sim_ended(sends[s][i]), TUTTI_OK);
	sim_ranks_close(&ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_random_programs_staged),
		cmocka_unit_test(test_tags_do_not_wait),
		cmocka_unit_test(test_flood_is_bounded),
		cmocka_unit_test(test_credit_returns),
		cmocka_unit_test(test_any_is_fair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

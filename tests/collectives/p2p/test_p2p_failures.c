/* Without this a send and a recv that differ, a dead peer or a deadline could end in a hang, or
 * fail ranks that they do not concern. Over the simulated network. */
#include "sim_messages.h"

#include "collectives/p2p/p2p_internal.h"
#include "tests/core/memory/proof_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void expect_failure(struct engine *e, tutti_status status, const char *words)
{
	if (engine_status(e) != status || !strstr(engine_error(e), words))
		fail_msg("expected status %d with '%s', got %d: %s", (int)status, words,
			 (int)engine_status(e), engine_error(e));
}

/* The thread's last error has words. */
static void expect_words(const char *words)
{
	if (!strstr(last_error(), words))
		fail_msg("expected '%s', got: %s", words, last_error());
}

/* Whether the pair alone fails: the next message of the same queue meets its recv. */
static void expect_next_pair(struct sim_ranks *ranks, size_t bytes)
{
	static uint8_t out[100000], in[100000];
	memset(out, (int)bytes, bytes);
	memset(in, 0xee, sizeof in);
	struct tutti_work *s = sim_send(ranks->engines[1], out, bytes, 2, 3);
	struct tutti_work *r = sim_recv(ranks->engines[2], in, bytes, 1, 3);

	sim_ranks_run(ranks);
	assert_int_equal(sim_ended(r), TUTTI_OK);
	assert_int_equal(sim_ended(s), TUTTI_OK);
	assert_memory_equal(in, out, bytes);
}

static bool all_are(const void *buf, uint8_t byte, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const uint8_t *)buf)[i] != byte)
			return false;
	return true;
}

/* What is written to stderr in between. */
struct capture {
	FILE *file;
	int own; /* the stderr of before */
};

static void capture_begin(struct capture *c)
{
	c->file = tmpfile();
	c->own = dup(STDERR_FILENO);
	assert_true(c->file && c->own >= 0 && dup2(fileno(c->file), STDERR_FILENO) >= 0);
}

static void capture_end(struct capture *c, char *text, size_t bytes)
{
	assert_true(dup2(c->own, STDERR_FILENO) >= 0);
	close(c->own);
	rewind(c->file);
	text[fread(text, 1, bytes - 1, c->file)] = '\0';
	fclose(c->file);
}

/* The rank of a send that was over writes one line. */
static void expect_said(const char *text, const char *words, bool is_copied)
{
	const char *line = strstr(text, words);

	if (is_copied ? !line || !strstr(line, "the send had ended with TUTTI_OK\n") ||
				strchr(line, '\n')[1]
		      : *text)
		fail_msg("expected %s '%s' on stderr, got: '%s'", is_copied ? "one" : "no", words,
			 text);
}

/* The recv knows its sender. Both calls end with words, or the sender, which was copied, says them;
 * both ranks stay well. */
static void mismatch_of(const struct sim_call *send, const struct sim_call *recv, bool send_first,
			const char *words)
{
	bool is_copied = send->count * 4 <= P2P_EAGER_BYTES;
	struct sim_ranks ranks;
	struct tutti_work *s = NULL, *r;
	struct capture capture;
	char said[1000];

	sim_messages_open(&ranks, 3, 11);
	capture_begin(&capture);
	memset(recv->buf, 0x5a, 400000);
	if (send_first)
		s = sim_issue(ranks.engines[1], send);
	if (send_first)
		sim_ranks_run(&ranks);
	r = sim_issue(ranks.engines[2], recv);
	sim_ranks_run(&ranks);
	if (!send_first)
		s = sim_issue(ranks.engines[1], send);
	sim_ranks_run(&ranks);
	assert_int_equal(sim_ended(r), TUTTI_ERR_MISMATCH);
	expect_words(words);
	assert_int_equal(*recv->source, 1);
	*recv->source = -1;
	assert_int_equal(sim_ended(s), is_copied ? TUTTI_OK : TUTTI_ERR_MISMATCH);
	if (!is_copied)
		expect_words(words);
	assert_true(all_are(recv->buf, 0x5a, 400000));
	expect_next_pair(&ranks, 10001); /* an idle rank hears of it in its next call */
	capture_end(&capture, said, sizeof said);
	expect_said(said, words, is_copied);
	for (uint32_t i = 0; i <= P2P_SLOTS; i++) /* the slot has come back */
		expect_next_pair(&ranks, 10001);
	expect_next_pair(&ranks, 99999);
	for (int i = 0; i < 3; i++)
		if (engine_status(ranks.engines[i]) != TUTTI_OK)
			fail_msg("rank %d has failed: %s", i, engine_error(ranks.engines[i]));
	sim_ranks_close(&ranks);
}

static void test_mismatch(void **arg)
{
	static float big[100000], other[100000];
	struct sim_call send = {P2P_SEND, big, 100, TUTTI_F32, 2, 3, NULL, 0, false};
	int source = -1;
	struct sim_call recv = {P2P_RECV, other, 50, TUTTI_F32, 1, 3, &source, 0, false};
	(void)arg;

	for (int first = 0; first < 2; first++) {
		send.count = 100;
		recv.count = 50;
		recv.peer = first ? 1 : TUTTI_ANY;
		mismatch_of(&send, &recv, first,
			    "rank 1 called send(f32, 100, tag 3) to rank 2, which called "
			    "recv(f32, 50, tag 3)");
		send.count = recv.count = 100000;
		recv.dtype = TUTTI_I32;
		mismatch_of(&send, &recv, first,
			    "rank 1 called send(f32, 100000, tag 3) to rank 2, which called "
			    "recv(i32, 100000, tag 3)");
		recv.dtype = TUTTI_F32;
		recv.count = 0;
		mismatch_of(&send, &recv, first,
			    "rank 1 called send(f32, 100000, tag 3) to rank 2, which called "
			    "recv(f32, 0, tag 3)");
	}
}

/* Many at once, in both directions: each call has its own error. */
static void test_mismatches_at_once(void **arg)
{
	enum { N = 40 };
	static uint8_t out[2][N][20000], in[2][N][20000];
	struct tutti_work *sends[2][N], *recvs[2][N];
	struct sim_ranks ranks;
	char words[200];
	(void)arg;

	sim_messages_open(&ranks, 2, 17);
	for (int i = 0; i < N; i++)
		for (int r = 0; r < 2; r++) {
			size_t bytes = 19000 + (size_t)i;
			sends[r][i] = sim_send(ranks.engines[r], out[r][i], bytes, !r, 4);
			recvs[r][i] = sim_recv(ranks.engines[r], in[r][i], bytes - (i & 1), !r, 4);
		}
	sim_ranks_run(&ranks);
	for (int i = 0; i < N; i++)
		for (int r = 0; r < 2; r++) {
			tutti_status status = i & 1 ? TUTTI_ERR_MISMATCH : TUTTI_OK;
			snprintf(words, sizeof words,
				 "rank %d called send(u8, %d, tag 4) to rank %d, which called "
				 "recv(u8, %d, tag 4)",
				 !r, 19000 + i, r, 19000 + i - 1);
			assert_int_equal(sim_ended(recvs[r][i]), status);
			if (status != TUTTI_OK)
				expect_words(words);
			assert_int_equal(sim_ended(sends[!r][i]), status);
			if (status != TUTTI_OK)
				expect_words(words);
		}
	assert_int_equal(engine_status(ranks.engines[0]), TUTTI_OK);
	assert_int_equal(engine_status(ranks.engines[1]), TUTTI_OK);
	sim_ranks_close(&ranks);
}

/* A send and a recv of one rank that differ, short and long, either first. */
static void test_mismatch_with_itself(void **arg)
{
	static uint8_t out[20000], in[20000];
	struct sim_ranks ranks;
	(void)arg;

	sim_messages_open(&ranks, 1, 1);
	struct engine *e = ranks.engines[0];
	for (int k = 0; k < 4; k++) {
		size_t bytes = k & 1 ? 20000 : 100;
		bool send_first = k & 2, is_copied = send_first && bytes == 100;
		struct tutti_work *s = NULL, *r;
		if (send_first)
			s = sim_send(e, out, bytes, 0, 1);
		r = sim_recv(e, in, bytes - 1, 0, 1);
		if (!send_first)
			s = sim_send(e, out, bytes, 0, 1);
		assert_int_equal(sim_ended(r), TUTTI_ERR_MISMATCH);
		expect_words("rank 0 called send(");
		assert_int_equal(sim_ended(s), is_copied ? TUTTI_OK : TUTTI_ERR_MISMATCH);
	}
	assert_int_equal(engine_status(e), TUTTI_OK);
	sim_ranks_close(&ranks);
}

/* In memory that the CPU may not touch: the recv's buffer stays as it is. */
static void test_mismatch_staged(void **arg)
{
	static uint8_t out[20000], got[10000];
	struct sim_ranks ranks;
	(void)arg;

	assert_int_equal(proof_kind_use(20261124), TUTTI_OK);
	sim_messages_open(&ranks, 3, 23);
	uint8_t *in = proof_alloc(sizeof got);
	memset(got, 0x5a, sizeof got);
	proof_write(in, got, sizeof got);
	struct sim_call recv = {P2P_RECV, in, sizeof got, TUTTI_U8, 1, 3, NULL, 0, true};
	struct tutti_work *r = sim_issue(ranks.engines[2], &recv);
	struct tutti_work *s = sim_send(ranks.engines[1], out, sizeof out, 2, 3);
	sim_ranks_run(&ranks);
	assert_int_equal(sim_ended(r), TUTTI_ERR_MISMATCH);
	assert_int_equal(sim_ended(s), TUTTI_ERR_MISMATCH);
	proof_read(got, in, sizeof got);
	assert_true(all_are(got, 0x5a, sizeof got));
	expect_next_pair(&ranks, 20000);
	sim_ranks_close(&ranks);
	proof_free(in);
}

static void test_self(void **arg)
{
	static uint8_t big[100000], got[100000], small[100];
	struct sim_ranks ranks;
	(void)arg;

	sim_messages_open(&ranks, 1, 1);
	struct engine *e = ranks.engines[0];
	memset(big, 7, sizeof big);
	struct tutti_work *send = sim_send(e, big, sizeof big, 0, 1);
	assert_false(sim_is_done(send));
	struct tutti_work *recv = sim_recv(e, got, sizeof got, 0, 1);
	assert_int_equal(sim_ended(recv), TUTTI_OK);
	assert_int_equal(sim_ended(send), TUTTI_OK);
	assert_memory_equal(big, got, sizeof big);
	recv = sim_recv(e, small, sizeof small, TUTTI_ANY, 2);
	assert_int_equal(sim_ended(sim_send(e, big, sizeof small, 0, 2)), TUTTI_OK);
	assert_int_equal(sim_ended(recv), TUTTI_OK);
	assert_memory_equal(big, small, sizeof small);
	struct sim_call late = {P2P_SEND, big, sizeof big, TUTTI_U8, 0, 5, NULL, 100, false};
	send = sim_issue(e, &late);
	sim_advance(ranks.sim, 200000000);
	engine_progress(e);
	assert_int_equal(sim_ended(send), TUTTI_ERR_TIMEOUT);
	expect_failure(
		e, TUTTI_ERR_TIMEOUT,
		"send(u8, 100000, tag 5) to rank 0 itself: waited 100 ms for recv(u8, 100000, "
		"tag 5) of its own: post the recv first, or put both into a group");
	sim_ranks_close(&ranks);
}

static void test_deadline(void **arg)
{
	static uint8_t big[100000];
	struct sim_ranks ranks;
	(void)arg;

	for (int sends = 0; sends < 2; sends++) {
		sim_messages_open(&ranks, 3, 21);
		struct sim_call c = {sends ? P2P_SEND : P2P_RECV,
				     big,
				     sizeof big,
				     TUTTI_U8,
				     2,
				     3,
				     NULL,
				     150,
				     false};
		struct tutti_work *work = sim_issue(ranks.engines[0], &c);
		sim_ranks_run(&ranks);
		assert_false(sim_is_done(work));
		sim_advance(ranks.sim, 200000000);
		engine_progress(ranks.engines[0]);
		assert_int_equal(sim_ended(work), TUTTI_ERR_TIMEOUT);
		expect_failure(ranks.engines[0], TUTTI_ERR_TIMEOUT,
			       sends ? "for recv(u8, 100000, tag 3) on rank 2"
				     : "for send(u8, 100000, tag 3) from rank 2");
		sim_ranks_close(&ranks);
	}
}

/* Ranks that wait for the dead rank fail; the others go on. */
static void test_death(void **arg)
{
	static uint8_t big[4][500000], got[4][500000];
	struct tutti_work *works[4];
	struct sim_ranks ranks;
	int who[2];
	(void)arg;

	for (uint64_t steps = 0; steps < 12; steps++) {
		sim_messages_open(&ranks, 4, 31 + steps);
		works[0] = sim_send(ranks.engines[0], big[0], sizeof big[0], 3, 1);
		works[1] = sim_recv(ranks.engines[1], got[1], sizeof got[1], 3, 1);
		work_release(sim_recv(ranks.engines[3], got[3], sizeof got[3], 0, 1));
		/* Rank 1 waits for another tag. */
		work_release(sim_send(ranks.engines[3], big[3], sizeof big[3], 1, 2));
		works[2] = sim_send(ranks.engines[2], big[2], 100, 3, 1);
		for (uint64_t k = 0; k < steps && sim_step(ranks.sim, who); k++) {
			engine_progress(ranks.engines[who[0]]);
			engine_progress(ranks.engines[who[1]]);
		}
		sim_kill(ranks.sim, 3);
		sim_ranks_run(&ranks);
		bool ended_before = sim_ended(works[0]) == TUTTI_OK;
		if (!ended_before)
			expect_failure(ranks.engines[0], TUTTI_ERR_PEER, "rank 3");
		assert_int_equal(sim_ended(works[1]), TUTTI_ERR_PEER);
		expect_failure(ranks.engines[1], TUTTI_ERR_PEER,
			       "recv(u8, 500000, tag 1) from rank 3");
		assert_int_equal(sim_ended(works[2]), TUTTI_OK); /* short: was done at once */
		assert_int_equal(engine_status(ranks.engines[2]), TUTTI_OK);
		works[3] = sim_recv(ranks.engines[2], got[2], 10, 3, 8);
		sim_ranks_run(&ranks);
		expect_failure(ranks.engines[2], TUTTI_ERR_PEER, "rank 3");
		work_release(works[3]);
		sim_ranks_close(&ranks);
	}
}

/* When a rank leaves, only the ranks that wait for it fail; those that wait for any rank fail when
 * all have left. */
static void test_leaving(void **arg)
{
	struct sim_ranks ranks;
	uint8_t out[3] = {1, 2, 3}, in[4];
	struct tutti_work *sends[3], *recvs[4];
	(void)arg;

	sim_messages_open(&ranks, 3, 41);
	for (int i = 0; i < 4; i++)
		recvs[i] = sim_recv(ranks.engines[0], &in[i], 1, TUTTI_ANY, 0);
	sends[0] = sim_send(ranks.engines[1], &out[0], 1, 0, 0);
	sim_ranks_run(&ranks);
	ranks.engines[1]->p2p->peers[0]->leaving.header.kind = P2P_LEAVING;
	p2p_note(ranks.engines[1]->p2p->peers[0], &ranks.engines[1]->p2p->peers[0]->leaving,
		 P2P_LEAVING);
	sim_ranks_run(&ranks);
	assert_int_equal(engine_status(ranks.engines[0]), TUTTI_OK);
	sends[1] = sim_send(ranks.engines[2], &out[1], 1, 0, 0);
	sends[2] = sim_send(ranks.engines[2], &out[2], 1, 0, 0);
	sim_ranks_run(&ranks);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sim_ended(recvs[i]), TUTTI_OK);
		assert_int_equal(in[i], i + 1);
		assert_int_equal(sim_ended(sends[i]), TUTTI_OK);
	}
	assert_false(sim_is_done(recvs[3]));
	p2p_note(ranks.engines[2]->p2p->peers[0], &ranks.engines[2]->p2p->peers[0]->leaving,
		 P2P_LEAVING);
	sim_ranks_run(&ranks);
	assert_int_equal(sim_ended(recvs[3]), TUTTI_ERR_PEER);
	expect_failure(ranks.engines[0], TUTTI_ERR_PEER,
		       "no rank is left that could send: ranks 1, 2 have left the communicator");
	sim_ranks_close(&ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_mismatches_at_once),
		cmocka_unit_test(test_mismatch_with_itself),
		cmocka_unit_test(test_mismatch_staged),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_leaving),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

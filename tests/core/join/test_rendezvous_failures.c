/* slow: 4 s */
/* Breaks when an attacker can disturb a job that is joining, or when a join that cannot succeed
 * hangs or does not say why, to every rank. */
#include "core/auth.h"
#include "core/join/find_server.h"
#include "core/join/frame.h"
#include "core/join/place.h"
#include "core/join/secret.h"
#include "tests/limit.h"
#include "tests/core/join/ranks.h"

#define SHORT_MS 500

/* A rank made by hand, up to its HELLO. */
static int call_as(int port, int rank, int size)
{
	struct job job = {.rank = rank, .size = size};
	uint8_t key[TUTTI_KEY_BYTES];
	struct wire wire = {.rank = rank, .fd = ranks_call(port)};

	secret_key(key, "the secret of this test", "", 0);
	assert_int_equal(find_server_own(&wire, key, &job, ranks_later()), TUTTI_OK);
	return wire.fd;
}

static void expect_closed(int fd)
{
	char bytes[256];

	assert_int_equal(net_recv_all(fd, bytes, sizeof bytes, ranks_later()), TUTTI_ERR_PEER);
	close(fd);
}

static void expect_told(int fd, tutti_status status, const char *says)
{
	uint8_t head[FRAME_BYTES];
	char text[ERROR_BYTES] = "";
	struct frame f;

	assert_int_equal(net_recv_all(fd, head, sizeof head, ranks_later()), TUTTI_OK);
	f = frame_get(head);
	assert_int_equal(f.kind, FRAME_FAILURE);
	assert_int_equal(f.value, status);
	assert_in_range(f.bytes, 1, sizeof text - 1);
	assert_int_equal(net_recv_all(fd, text, f.bytes, ranks_later()), TUTTI_OK);
	if (!strstr(text, says))
		fail_msg("\"%s\" does not say \"%s\"", text, says);
	close(fd);
}

static void a_wrong_secret_fails_the_attacker_alone(void **state)
{
	struct rank_run runs[3], attacker;

	ranks_prepare(runs, 3, ranks_free_port());
	attacker = runs[1];
	strcpy(attacker.job.secret, "a wrong secret");
	ranks_start(&runs[0]);
	ranks_start(&attacker);
	ranks_finish(&attacker);
	ranks_expect(&attacker, TUTTI_ERR_AUTH, "cannot prove that it knows this rank's secret");
	assert_null(strstr(attacker.error, "a wrong secret"));
	ranks_start(&runs[1]);
	ranks_start(&runs[2]);
	for (int r = 0; r < 3; r++)
		ranks_finish(&runs[r]);
	ranks_expect_well(runs, 3);
}

/* Where rank 0 may be at several ports, the answer of one is not the last word. */
static void a_wrong_secret_is_said_after_all_ports(void **state)
{
	struct rank_run runs[2], attacker;

	ranks_prepare(runs, 2, ranks_free_port());
	runs[0].job.port_is_taken = runs[1].job.port_is_taken = 1;
	attacker = runs[1];
	strcpy(attacker.job.secret, "a wrong secret");
	attacker.timeout_ms = SHORT_MS;
	ranks_start(&runs[0]);
	ranks_start(&attacker);
	ranks_finish(&attacker);
	ranks_expect(&attacker, TUTTI_ERR_AUTH, "cannot prove that it knows this rank's secret");
	ranks_expect(&attacker, TUTTI_ERR_AUTH, "; 16 tries: 1 another secret, 15 refused");
	ranks_start(&runs[1]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[1]);
	ranks_expect_well(runs, 2);
}

/* The secret is right and the meeting is another: no advice to look for another secret. */
static void the_other_kind_of_meeting_is_told_apart(void **state)
{
	static const char *const says[] = {"calls tutti_comm_grow, which new ranks join with",
					   "waited for the ranks of a job that begins"};
	static const tutti_status status[] = {TUTTI_ERR_MISMATCH, TUTTI_ERR_TIMEOUT};

	for (int grows = 0; grows < 2; grows++) {
		struct rank_run runs[2], attacker;

		ranks_prepare(runs, 2, ranks_free_port());
		runs[0].job.is_growing = runs[1].job.is_growing = !grows;
		attacker = runs[1];
		attacker.job.is_growing = grows;
		attacker.timeout_ms = SHORT_MS;
		ranks_start(&runs[0]);
		close(ranks_call(runs[0].job.port)); /* it listens */
		ranks_start(&attacker);
		ranks_finish(&attacker);
		ranks_expect(&attacker, status[grows], says[grows]);
		ranks_start(&runs[1]);
		ranks_finish(&runs[0]);
		ranks_finish(&runs[1]);
		ranks_expect_well(runs, 2);
	}
}

static void no_secret_is_not_the_jobs_secret(void **state)
{
	struct rank_run runs[2], attacker;

	ranks_prepare(runs, 2, ranks_free_port());
	ranks_start(&runs[0]);
	attacker = runs[1];
	attacker.job.secret[0] = '\0';
	attacker.timeout_ms = SHORT_MS;
	ranks_start(&attacker);
	ranks_finish(&attacker);
	ranks_expect(&attacker, TUTTI_ERR_TIMEOUT, "this rank was given no secret");
	attacker = runs[1];
	attacker.job.secret[0] = '\0';
	attacker.env.insecure = 1;
	ranks_start(&attacker);
	ranks_finish(&attacker);
	ranks_expect(&attacker, TUTTI_ERR_AUTH, "secret");
	ranks_start(&runs[1]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[1]);
	ranks_expect_well(runs, 2);
}

static void attackers_are_dropped(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser of "
				   "average length\r\n\r\n";
	struct rank_run runs[3];
	uint8_t garbage[4096];
	int silent, curt, port = ranks_free_port(), fd;
	struct auth auth;
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], key[TUTTI_KEY_BYTES];

	ranks_prepare(runs, 3, port);
	ranks_start(&runs[0]);
	silent = ranks_call(port);
	curt = ranks_call(port);
	assert_int_equal(net_send_all(curt, "TUT", 3, ranks_later()), TUTTI_OK);
	fd = ranks_call(port);
	assert_int_equal(net_send_all(fd, http, sizeof http, ranks_later()), TUTTI_OK);
	expect_closed(fd);
	fd = ranks_call(port);
	auth_random(garbage, sizeof garbage);
	net_send_all(fd, garbage, sizeof garbage, ranks_later());
	expect_closed(fd);
	fd = ranks_call(port);
	close(fd);
	/* The right first words, and then a guess. */
	fd = ranks_call(port);
	auth_random(key, sizeof key);
	auth_hello(&auth, key, garbage, hello);
	assert_int_equal(net_send_all(fd, hello, sizeof hello, ranks_later()), TUTTI_OK);
	assert_int_equal(net_recv_all(fd, answer, sizeof answer, ranks_later()), TUTTI_OK);
	net_send_all(fd, garbage, 200, ranks_later());
	expect_closed(fd);
	ranks_start(&runs[2]);
	ranks_start(&runs[1]);
	for (int r = 0; r < 3; r++)
		ranks_finish(&runs[r]);
	ranks_expect_well(runs, 3);
	close(silent);
	close(curt);
}

/* Everything is right but the proof: the server must look at it before it believes the rest. */
static void a_claim_without_a_proof_is_not_believed(void **state)
{
	struct rank_run runs[2];
	int port = ranks_free_port(), fd;
	struct auth auth;
	uint8_t key[TUTTI_KEY_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};

	ranks_prepare(runs, 2, port);
	ranks_start(&runs[0]);
	fd = ranks_call(port);
	auth_random(key, sizeof key);
	auth_hello(&auth, key, reply, hello);
	assert_int_equal(net_send_all(fd, hello, sizeof hello, ranks_later()), TUTTI_OK);
	assert_int_equal(net_recv_all(fd, answer, sizeof answer, ranks_later()), TUTTI_OK);
	frame_put(reply + AUTH_PROOF_BYTES,
		  (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, UINT32_MAX});
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES, FRAME_VERSION);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 4, 1);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 8, 2);
	assert_int_equal(net_send_all(fd, reply, sizeof reply, ranks_later()), TUTTI_OK);
	expect_closed(fd);
	ranks_start(&runs[1]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[1]);
	ranks_expect_well(runs, 2);
}

/* As a process with this secret: it hangs up where the server's proof is wrong, unless it insists.
 * Rank 1 of 3, whose deadline has come. */
static int call_with(int port, const char *secret, bool insists)
{
	uint8_t key[TUTTI_KEY_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t context[AUTH_CONTEXT_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};
	struct auth auth;
	int fd = ranks_call(port);

	wire_context(context, false);
	secret_key(key, secret, "", 0);
	auth_hello(&auth, key, context, hello);
	assert_int_equal(net_send_all(fd, hello, sizeof hello, ranks_later()), TUTTI_OK);
	assert_int_equal(net_recv_all(fd, answer, sizeof answer, ranks_later()), TUTTI_OK);
	if (auth_check_answer(&auth, answer, reply) != TUTTI_OK && !insists) {
		close(fd);
		return -1;
	}
	frame_put(reply + AUTH_PROOF_BYTES, (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, 0});
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES, FRAME_VERSION);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 4, 1);
	put_u32(reply + AUTH_PROOF_BYTES + FRAME_BYTES + 8, 3);
	assert_int_equal(net_send_all(fd, reply, sizeof reply, ranks_later()), TUTTI_OK);
	return fd;
}

/* What somebody with another secret hears at once, rank 0 would only see as a rank that is missing.
 */
static void who_has_another_secret_is_counted(void **state)
{
	struct rank_run runs[3];
	int port = ranks_free_port(), fd;

	ranks_prepare(runs, 3, port);
	ranks_start(&runs[0]);
	fd = ranks_call(port);
	assert_int_equal(net_send_all(fd, "GET", 3, ranks_later()), TUTTI_OK);
	close(fd); /* never spoke the protocol: any scanner does so */
	expect_closed(call_with(port, "another secret", true));
	call_with(port, "another secret", false);
	fd = call_with(port, "the secret of this test", true);
	/* Rank 0 itself may not have come so far as this one. */
	expect_told(fd, TUTTI_ERR_TIMEOUT,
		    " 2 missing; 2 connections ended without proving the job's secret, the last "
		    "from 127.0.0.1 (the other end reports why: another secret, TUTTI_RESTARTED, "
		    "or an error of its own)");
	ranks_finish(&runs[0]);
	ranks_expect(&runs[0], TUTTI_ERR_TIMEOUT, "; 2 connections ended without");
}

/* More than the server has places for. */
static void pending_connections_gives_way(void **state)
{
	struct rank_run runs[2];
	int port = ranks_free_port(), callers[100];

	ranks_prepare(runs, 2, port);
	/* Less than a single attacker is allowed. */
	runs[0].timeout_ms = runs[1].timeout_ms = 8000;
	ranks_start(&runs[0]);
	for (int i = 0; i < 100; i++)
		callers[i] = ranks_call(port);
	ranks_start(&runs[1]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[1]);
	ranks_expect_well(runs, 2);
	for (int i = 0; i < 100; i++)
		close(callers[i]);
}

static void giant_records_end_the_join(void **state)
{
	struct rank_run runs[2];
	uint8_t bytes[FRAME_BYTES + FRAME_WELCOME_BYTES];
	int port = ranks_free_port(), fd;

	ranks_prepare(runs, 2, port);
	ranks_start(&runs[0]);
	fd = call_as(port, 1, 2);
	assert_int_equal(net_recv_all(fd, bytes, sizeof bytes, ranks_later()), TUTTI_OK);
	assert_int_equal(frame_get(bytes).kind, FRAME_WELCOME);
	frame_put(bytes, (struct frame){FRAME_RECORD, UINT32_MAX, UINT64_MAX});
	assert_int_equal(net_send_all(fd, bytes, FRAME_BYTES, ranks_later()), TUTTI_OK);
	ranks_finish(&runs[0]);
	assert_int_not_equal(runs[0].status, TUTTI_OK);
	assert_non_null(strstr(runs[0].error, "rank 1 gave 4294967295 bytes"));
	close(fd);
}

static void nonsense_after_the_welcome_counts_as_death(void **state)
{
	static const struct frame nonsense[] = {
		{FRAME_HELLO, 0, 0}, {FRAME_ANSWER, 0, 0}, {77, 1000, 0}, {FRAME_BYE, 4, 0}};

	for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
		struct rank_run runs[2];
		uint8_t bytes[FRAME_BYTES + FRAME_WELCOME_BYTES];
		int port = ranks_free_port(), fd;

		ranks_prepare(runs, 2, port);
		ranks_start(&runs[0]);
		fd = call_as(port, 1, 2);
		assert_int_equal(net_recv_all(fd, bytes, sizeof bytes, ranks_later()), TUTTI_OK);
		frame_put(bytes, nonsense[i]);
		assert_int_equal(net_send_all(fd, bytes, FRAME_BYTES, ranks_later()), TUTTI_OK);
		ranks_finish(&runs[0]);
		ranks_expect(&runs[0], TUTTI_ERR_PEER, "the connection to rank 1 was lost");
		close(fd);
	}
}

static void sizes_that_disagree_are_said_to_all(void **state)
{
	struct rank_run runs[3];

	ranks_prepare(runs, 3, ranks_free_port());
	runs[2].job.size = 4;
	ranks_run(runs, 3);
	for (int r = 0; r < 3; r++)
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH,
			     "rank 2 says the world has 4 ranks, rank 0 says 3");
}

static void hosts_that_disagree_are_said_to_all(void **state)
{
	struct rank_run runs[3];

	ranks_prepare(runs, 3, ranks_free_port());
	for (int r = 0; r < 3; r++)
		runs[r].job.hosts = r == 1 ? 5 : 4;
	ranks_run(runs, 3);
	for (int r = 0; r < 3; r++)
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH,
			     "have different lists of the job's 3 hosts");
}

static void a_rank_twice_is_said_to_all(void **state)
{
	struct rank_run runs[4];

	ranks_prepare(runs, 4, ranks_free_port());
	runs[3].job.rank = 2;
	ranks_run(runs, 4);
	for (int r = 0; r < 4; r++)
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH,
			     "two processes say they are rank 2 of 4");
}

static void records_that_disagree_are_said_to_all(void **state)
{
	struct rank_run runs[3];

	ranks_prepare(runs, 3, ranks_free_port());
	runs[1].max_record = 50;
	ranks_run(runs, 3);
	for (int r = 0; r < 3; r++) {
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH, "rank 1");
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH, "49");
		ranks_expect(&runs[r], TUTTI_ERR_MISMATCH, "99");
	}
}

/* A rank that comes after the verdict hears it too, as long as rank 0 is there. */
static void late_ranks_are_told(void **state)
{
	struct rank_run run[3];
	int port = ranks_free_port(), wrong, late;

	ranks_prepare(run, 3, port);
	ranks_start(&run[0]);
	wrong = call_as(port, 1, 9);
	expect_told(wrong, TUTTI_ERR_MISMATCH, "rank 1 says the world has 9 ranks");
	late = call_as(port, 2, 3);
	expect_told(late, TUTTI_ERR_MISMATCH, "rank 1 says the world has 9 ranks");
	ranks_finish(&run[0]);
	ranks_expect(&run[0], TUTTI_ERR_MISMATCH, "rank 1 says the world has 9 ranks");
}

static void no_listener_is_named(void **state)
{
	struct rank_run runs[2];
	char where[64];

	ranks_prepare(runs, 2, ranks_free_port());
	runs[1].timeout_ms = SHORT_MS;
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	snprintf(where, sizeof where, "127.0.0.1:%d", runs[1].job.port);
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, where);
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, "rank 0 is missing");
	/* The same while it may be at several ports, or in a file. */
	ranks_prepare(runs, 2, ranks_free_port());
	runs[1].job.port_is_taken = 1;
	runs[1].timeout_ms = SHORT_MS;
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, "on the ports");
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, "rank 0 is missing");
	ranks_prepare(runs, 2, 0);
	runs[1].job.meeting = JOB_FILE;
	runs[1].timeout_ms = SHORT_MS;
	strcpy(runs[1].job.path, "/tmp/tuttitest-there-is-no/such-file");
	ranks_start(&runs[1]);
	ranks_finish(&runs[1]);
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, "no rendezvous file /tmp/tuttitest-there-is-no");
}

static void missing_ranks_are_named_to_all(void **state)
{
	struct rank_run runs[4];

	for (int has_secret = 0; has_secret < 2; has_secret++) {
		ranks_prepare(runs, 4, ranks_free_port());
		for (int r = 0; r < 4 && !has_secret; r++)
			runs[r].job.secret[0] = '\0';
		runs[0].timeout_ms = SHORT_MS; /* the others would wait longer */
		ranks_start(&runs[0]);
		ranks_start(&runs[2]);
		ranks_finish(&runs[0]);
		ranks_finish(&runs[2]);
		ranks_expect(&runs[0], TUTTI_ERR_TIMEOUT,
			     "all 4 ranks had joined: ranks 1, 3 missing");
		ranks_expect(&runs[2], TUTTI_ERR_TIMEOUT,
			     "all 4 ranks had joined: ranks 1, 3 missing");
		assert_int_equal(strstr(runs[2].error, "there is no TUTTI_SECRET") == NULL,
				 has_secret);
	}
}

static void go(struct rank_run *run, struct rendezvous *r)
{
	(void)r;
	run->rounds = 0;
}

static void a_rank_that_leaves_is_named_to_all(void **state)
{
	struct rank_run runs[3];

	ranks_prepare(runs, 3, ranks_free_port());
	runs[1].between = go;
	ranks_run(runs, 3);
	ranks_expect(&runs[0], TUTTI_ERR_PEER, "rank 1 ");
	ranks_expect(&runs[2], TUTTI_ERR_PEER, "rank 1 ");
}

static void *give_late(void *arg)
{
	struct rank_run *run = arg;
	struct rendezvous *r = NULL;
	char byte;

	run->status = rendezvous_join(&r, &run->job, &run->env, ranks_later());
	if (run->status != TUTTI_OK)
		return NULL;
	/* When all the others have given up, and rank 0 is gone: what was said lies waiting. */
	assert_int_equal(read(*(int *)run->arg, &byte, 1), 0);
	run->status = ranks_round(run, r, 1);
	snprintf(run->error, sizeof run->error, "%s", last_error());
	rendezvous_leave(r, ranks_later());
	return NULL;
}

static void shorten(struct rank_run *run, struct rendezvous *r)
{
	(void)r;
	run->timeout_ms = SHORT_MS;
}

static void a_silent_rank_is_named_to_all(void **state)
{
	struct rank_run runs[3];
	int hold[2];

	assert_int_equal(pipe(hold), 0);
	ranks_prepare(runs, 3, ranks_free_port());
	runs[0].between = runs[2].between = shorten;
	runs[1].arg = &hold[0];
	assert_int_equal(pthread_create(&runs[1].thread, NULL, give_late, &runs[1]), 0);
	ranks_start(&runs[0]);
	ranks_start(&runs[2]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[2]);
	close(hold[1]);
	ranks_finish(&runs[1]);
	ranks_expect(&runs[0], TUTTI_ERR_TIMEOUT, "rank 1 of them stopped answering");
	ranks_expect(&runs[2], TUTTI_ERR_TIMEOUT, "rank 1 of them stopped answering");
	ranks_expect(&runs[1], TUTTI_ERR_TIMEOUT, "rank 1 of them stopped answering");
	close(hold[0]);
}

static void death_while_joining_is_said_to_all(void **state)
{
	struct rank_run runs[3];
	int port = ranks_free_port(), fd;

	ranks_prepare(runs, 3, port);
	ranks_start(&runs[0]);
	fd = call_as(port, 1, 3);
	close(fd);
	ranks_start(&runs[2]);
	ranks_finish(&runs[0]);
	ranks_finish(&runs[2]);
	ranks_expect(&runs[0], TUTTI_ERR_PEER, "the connection to rank 1 was lost (has it died?)");
	/* Rank 2 may have come so late that nobody is there any more to tell it. */
	assert_int_not_equal(runs[2].status, TUTTI_OK);
}

int main(void)
{
	test_ports(); /* its descriptor is not counted */
	int fds = open_descriptors();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_secret_fails_the_attacker_alone),
		cmocka_unit_test(a_wrong_secret_is_said_after_all_ports),
		cmocka_unit_test(the_other_kind_of_meeting_is_told_apart),
		cmocka_unit_test(no_secret_is_not_the_jobs_secret),
		cmocka_unit_test(attackers_are_dropped),
		cmocka_unit_test(a_claim_without_a_proof_is_not_believed),
		cmocka_unit_test(who_has_another_secret_is_counted),
		cmocka_unit_test(pending_connections_gives_way),
		cmocka_unit_test(giant_records_end_the_join),
		cmocka_unit_test(nonsense_after_the_welcome_counts_as_death),
		cmocka_unit_test(sizes_that_disagree_are_said_to_all),
		cmocka_unit_test(hosts_that_disagree_are_said_to_all),
		cmocka_unit_test(a_rank_twice_is_said_to_all),
		cmocka_unit_test(records_that_disagree_are_said_to_all),
		cmocka_unit_test(late_ranks_are_told),
		cmocka_unit_test(no_listener_is_named),
		cmocka_unit_test(missing_ranks_are_named_to_all),
		cmocka_unit_test(a_rank_that_leaves_is_named_to_all),
		cmocka_unit_test(a_silent_rank_is_named_to_all),
		cmocka_unit_test(death_while_joining_is_said_to_all),
	};

	test_limit(110);
	return ranks_end(cmocka_run_group_tests(tests, NULL, NULL), fds);
}

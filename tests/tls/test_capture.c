/* Breaks when a job with TUTTI_TLS=1 lets anything go over tcp that can be read: joining, data, the
 * control ring, calls of an rpc. What is looked for is found without it. */
#include "tests/tls/capture.h"
#include "tests/openssl.h"

#include "core/auth.h"
#include "core/net.h"
#include "core/status.h"
#include "core/tls.h"

#include <tutti/rpc.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS        3
#define LARGE        (1 << 20)
#define RECORD_FIRST 20 /* the types of TLS records: change_cipher_spec, ... */
#define RECORD_LAST  23 /* ... application_data */

static const char secret[] = "the secret that only ranks have";
static const char small_text[] = "a small message that nobody else may read";
static const char large_text[64] =
	"a line that a long message has thousands of, and nobody sees....";

static const char called[] = "a function that nobody else calls";
static const char asked_text[64] =
	"a question in payloads of any length, also of several messages.";
static const char error_text[] = "an error that only its caller may see";

struct rank {
	int rank, port;
	pthread_t thread;
	char error[300]; /* "": it went well */
};

static void check(struct rank *r, tutti_status status, const char *what)
{
	if (status != TUTTI_OK && !r->error[0])
		snprintf(r->error, sizeof r->error, "%s: %s", what, tutti_comm_error(NULL));
}

static void talk(struct rank *r, tutti_comm *comm)
{
	char *large = malloc(LARGE), *all = malloc(sizeof small_text * RANKS);
	char from[sizeof small_text] = "";
	tutti_comm *child = NULL;

	for (size_t i = 0; r->rank == 1 && i < LARGE; i += sizeof large_text)
		memcpy(large + i, large_text, sizeof large_text);
	check(r, tutti_broadcast(large, large, LARGE, TUTTI_U8, 1, comm, NULL), "broadcast");
	check(r, tutti_all_gather(small_text, all, sizeof small_text, TUTTI_U8, comm, NULL),
	      "all_gather");
	if (memcmp(large + LARGE - sizeof large_text, large_text, sizeof large_text) != 0 ||
	    strcmp(all + sizeof small_text * (RANKS - 1), small_text) != 0)
		snprintf(r->error, sizeof r->error, "wrong bytes");
	if (r->rank == 0)
		check(r, tutti_send(small_text, sizeof small_text, TUTTI_U8, 2, comm, NULL),
		      "send");
	else if (r->rank == 2)
		check(r, tutti_recv(from, sizeof from, TUTTI_U8, 0, comm, NULL), "recv");
	check(r, tutti_comm_split(comm, 0, -r->rank, NULL, &child), "split");
	if (child)
		check(r, tutti_barrier(child, NULL), "barrier");
	tutti_comm_destroy(child);
	free(large);
	free(all);
}

static tutti_status answer(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	(void)arg;
	return request->bytes ? tutti_rpc_reply_copy(reply, request->data, request->bytes)
			      : tutti_set_error(TUTTI_ERR_SYSTEM, error_text);
}

/* Payloads and answers in a message, beside one, and by themselves. */
static void ask(struct rank *r, tutti_rpc *rpc)
{
	static const size_t bytes[] = {sizeof asked_text, 64 * sizeof asked_text, LARGE};
	char *data = malloc(LARGE), *room = malloc(LARGE);

	for (size_t i = 0; i < LARGE; i += sizeof asked_text)
		memcpy(data + i, asked_text, sizeof asked_text);
	for (int i = 0; i < 3; i++) {
		tutti_rpc_piece piece = {data, bytes[i]};
		tutti_rpc_answer in = {.data = room, .bytes = LARGE};
		check(r, tutti_rpc_call(rpc, 2, called, &piece, 1, &in, NULL), "call");
		if (in.bytes != bytes[i] || memcmp(room, data, bytes[i]) != 0)
			snprintf(r->error, sizeof r->error, "another answer");
	}
	if (tutti_rpc_call(rpc, 2, called, NULL, 0, NULL, NULL) != TUTTI_ERR_SYSTEM ||
	    !strstr(tutti_comm_error(NULL), error_text))
		snprintf(r->error, sizeof r->error, "another error");
	free(data);
	free(room);
}

static void call(struct rank *r, tutti_comm *comm)
{
	const tutti_rpc_function function = {.name = called, .fn = answer};
	const tutti_rpc_config config = {.functions = &function, .num_functions = 1};
	tutti_rpc *rpc = NULL;

	check(r, tutti_rpc_create(&rpc, comm, &config), "rpc_create");
	if (rpc && r->rank == 0)
		ask(r, rpc);
	if (rpc)
		check(r, tutti_rpc_shutdown(rpc, 0), "rpc_shutdown");
	tutti_rpc_destroy(rpc);
}

static void *be_a_rank(void *arg)
{
	struct rank *r = arg;
	char where[64];
	tutti_config config = {.rank = r->rank,
			       .world_size = RANKS,
			       .rendezvous = where,
			       .secret = secret,
			       .transports = "tcp",
			       .timeout_ms = 60000};
	tutti_comm *comm = NULL;

	snprintf(where, sizeof where, "tcp://127.0.0.1:%d", r->port);
	check(r, tutti_init(&comm, &config), "init");
	if (comm) {
		talk(r, comm);
		call(r, comm);
	}
	tutti_comm_destroy(comm);
	return NULL;
}

static void run_job(bool has_tls)
{
	struct rank ranks[RANKS] = {{.rank = 0}};
	int fd, port;

	assert_int_equal(net_listen("127.0.0.1", 0, 1, &fd, &port), TUTTI_OK);
	close(fd);
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_TLS", has_tls ? "1" : "0", 1);
	capture_begin();
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = (struct rank){.rank = i, .port = port};
		assert_int_equal(pthread_create(&ranks[i].thread, NULL, be_a_rank, &ranks[i]), 0);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < RANKS; i++)
		if (ranks[i].error[0])
			fail_msg("rank %d: %s", i, ranks[i].error);
}

/* What this machine is called, which ranks tell each other when they join. */
static void boot_id(char text[37])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	assert_non_null(file);
	assert_non_null(fgets(text, 37, file));
	fclose(file);
}

static void in_clear_all_can_be_read(void **state)
{
	char machine[37];

	boot_id(machine);
	run_job(false);
	assert_true(capture_has(small_text, sizeof small_text));
	assert_true(capture_has(large_text, sizeof large_text));
	assert_true(capture_has(called, sizeof called - 1));
	assert_true(capture_has(asked_text, sizeof asked_text));
	assert_true(capture_has(error_text, sizeof error_text - 1));
	assert_true(capture_has(machine, 36));
	assert_false(capture_has(secret, sizeof secret - 1));
}

/* How much of it is the greeting, which goes in clear. */
static size_t greeting_bytes(const struct stream *s)
{
	if (s->count >= 8 && memcmp(s->bytes, "TUTTIA01", 8) == 0)
		return AUTH_HELLO_BYTES + AUTH_PROOF_BYTES;
	return AUTH_ANSWER_BYTES;
}

/* From the greeting to the end nothing but records: one after another, as their headers say. */
static size_t expect_sealed(const struct stream *s)
{
	size_t at = greeting_bytes(s), records = 0;

	while (at + 5 <= s->count) {
		const uint8_t *header = s->bytes + at;
		size_t bytes = (size_t)header[3] << 8 | header[4];
		if (header[0] < RECORD_FIRST || header[0] > RECORD_LAST || header[1] != 3 ||
		    bytes > TLS_RECORD_BYTES + 256)
			fail_msg("%u to %u: byte %zu of %zu begins no record: %u %u %u", s->from,
				 s->to, at, s->count, header[0], header[1], header[2]);
		at += 5 + bytes;
		records++;
	}
	return records;
}

static void with_tls_nothing_can_be_read(void **state)
{
	const struct stream *streams;
	char machine[37];
	int count, busy = 0;

	boot_id(machine);
	run_job(true);
	for (size_t at = 0; at + 8 < sizeof small_text; at++)
		assert_false(capture_has(small_text + at, 8));
	for (size_t at = 0; at + 8 <= sizeof large_text; at++)
		assert_false(capture_has(large_text + at, 8));
	for (size_t at = 0; at + 8 <= sizeof asked_text; at++)
		assert_false(capture_has(asked_text + at, 8));
	assert_false(capture_has(called, 8));
	assert_false(capture_has(error_text, 8));
	assert_false(capture_has(machine, 12));
	assert_false(capture_has(secret, 8));
	streams = capture_streams(&count);
	for (int i = 0; i < count; i++)
		busy += expect_sealed(&streams[i]) > 1;
	/* The meeting, data, the control ring: each rank has more than these, both ways. */
	assert_in_range(busy, 4 * RANKS, 512);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_clear_all_can_be_read),
		cmocka_unit_test(with_tls_nothing_can_be_read),
	};

	unsetenv("TUTTI_SECRET");
	unsetenv("TUTTI_SECRET_FILE");
	return openssl_is_here() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}

/* slow: 2 s */
/* Would break: that a rank which has left its last call gives its peers what a reset took of it,
 * whether it computes or leaves the communicator; and that an abort waits for none of this. Ranks
 * of one process, in a network of its own. */
#include "tests/limit.h"
#include "tests/transport/network.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More than the receiver's kernel takes of one who does not read, less than both kernels take. */
#define COUNT (512u << 10)

static uint8_t sent[COUNT], got[COUNT];

static void expect(bool is_so, const char *what, const tutti_comm *comm)
{
	if (is_so)
		return;
	fprintf(stderr, "%s: %s\n", what, comm ? tutti_comm_error(comm) : tutti_comm_error(NULL));
	_exit(1);
}

/* Two ranks whose connections are there. */
static void join(tutti_comm *comms[2])
{
	const tutti_config config = {.transports = "tcp", .timeout_ms = 30000};
	tutti_work *works[2] = {NULL, NULL};
	uint32_t word[2] = {1, 2};

	expect(tutti_init_all(comms, 2, &config) == TUTTI_OK, "init", NULL);
	for (int r = 0; r < 2; r++) {
		const tutti_call call = {.work = &works[r]};
		expect(tutti_all_reduce(&word[r], &word[r], 1, TUTTI_U32, TUTTI_SUM, comms[r],
					&call) == TUTTI_OK,
		       "all_reduce", comms[r]);
	}
	for (int r = 0; r < 2; r++)
		expect(tutti_work_wait(&works[r], 0) == TUTTI_OK && word[r] == 3, "wait", comms[r]);
}

/* Rank 0's last call. It is over when its bytes are the kernel's. */
static void send_last(tutti_comm *comm)
{
	for (size_t i = 0; i < COUNT; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	memset(got, 0, COUNT);
	expect(tutti_broadcast(sent, sent, COUNT, TUTTI_U8, 0, comm, NULL) == TUTTI_OK, "broadcast",
	       comm);
}

static void *receive_last(void *comm)
{
	expect(tutti_broadcast(got, got, COUNT, TUTTI_U8, 0, comm, NULL) == TUTTI_OK, "receiving",
	       comm);
	expect(memcmp(sent, got, COUNT) == 0, "wrong bytes", comm);
	return NULL;
}

static void a_rank_that_computes(void)
{
	tutti_comm *comms[2];

	join(comms);
	send_last(comms[0]);
	expect(network_reset_all() >= 2, "resets", NULL);
	receive_last(comms[1]);
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

static void a_rank_that_leaves(void)
{
	tutti_comm *comms[2];
	pthread_t thread;

	join(comms);
	send_last(comms[0]);
	expect(network_reset_all() >= 2, "resets", NULL);
	expect(pthread_create(&thread, NULL, receive_last, comms[1]) == 0, "a thread", NULL);
	tutti_comm_destroy(comms[0]);
	pthread_join(thread, NULL);
	tutti_comm_destroy(comms[1]);
}

/* It is gone in good order before the receiver calls. */
static void a_rank_that_has_left(void)
{
	tutti_comm *comms[2];

	setenv("TUTTI_RECONNECT_MS", "300", 1);
	join(comms);
	send_last(comms[0]);
	tutti_comm_destroy(comms[0]);
	receive_last(comms[1]);
	tutti_comm_destroy(comms[1]);
}

/* Its peer cannot be reached, and it has ten minutes to try: but nobody wants its bytes any more.
 */
static void an_abort(void)
{
	tutti_comm *comms[2];

	setenv("TUTTI_RECONNECT_MS", "600000", 1);
	join(comms);
	send_last(comms[0]);
	expect(network_reset_all() >= 2, "resets", NULL);
	network_up(false);
	expect(tutti_comm_abort(comms[0]) == TUTTI_OK, "abort", comms[0]);
	tutti_comm_destroy(comms[0]);
	expect(tutti_comm_abort(comms[1]) == TUTTI_OK, "abort", comms[1]);
	tutti_comm_destroy(comms[1]);
	network_up(true);
	unsetenv("TUTTI_RECONNECT_MS");
}

int main(void)
{
	if (!network_enter())
		return 77;
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_RECONNECT", "2", 1);
	setenv("TUTTI_ALGO", "broadcast=direct", 1);
	test_limit(200);
	for (int i = 0; i < 5; i++) {
		a_rank_that_computes();
		a_rank_that_leaves();
	}
	a_rank_that_has_left();
	an_abort();
	return 0;
}

/* no_tsan: its ranks are processes, which TSan sees nothing of */
/* Would break: a communicator takes more descriptors for each rank than one, or its children take
 * those for the ranks of a node again, so that a process that makes many of them has none left. */
#include "tests/collectives/rank_processes.h"

#include "tests/entries.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/unit.h"

#define OWN   2    /* of the process: the trace page and what wakes the helper */
#define BLOCK 4096 /* elements for each rank, so many that each sends them to each */

/* At rest: three listeners, the ring's connections and its epoll. */
static const struct limits {
	int way, at_rest, used; /* used: besides one for each rank */
	const char *reconnect;
} of_ways[] = {
	{1, 7, 8, NULL}, {2, 6, 6, NULL}, {2, 7, 7, "TUTTI_RECONNECT=2"},
	{3, 7, 9, NULL}, {4, 6, 6, NULL},
};
static const struct limits *limits;

static int before; /* of the process that starts the ranks, so that they have as many */

#define NEED(condition, ...)                                                                       \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "; %s\n", tutti_comm_error(NULL));                         \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

static void work(tutti_comm *comm)
{
	float x[3000] = {0};

	for (int i = 0; i < 20; i++)
		NEED(tutti_all_reduce(x, x, i % 2 ? 3000 : 1, TUTTI_F32, TUTTI_SUM, comm, NULL) ==
			     TUTTI_OK,
		     "call %d", i);
}

/* Returns how many descriptors it took, and has given back. */
static int count(tutti_comm *child, int had)
{
	work(child);
	int took = open_descriptors() - had;
	tutti_comm_destroy(child);
	NEED(open_descriptors() == had, "%d are left", open_descriptors() - had);
	return took;
}

static void make_children(tutti_comm *comm)
{
	int rank = tutti_rank(comm), had = open_descriptors(), took, flag = 1;
	tutti_comm *child;

	NEED(tutti_comm_dup(comm, &child) == TUTTI_OK, "dup");
	took = count(child, had);
	NEED(took <= 2, "a copy took %d descriptors", took);
	NEED(tutti_comm_split(comm, rank % 2, rank, NULL, &child) == TUTTI_OK, "split");
	took = count(child, had);
	NEED(took <= 2, "a child took %d descriptors", took);
	NEED(tutti_comm_dup(comm, &child) == TUTTI_OK, "dup");
	NEED(tutti_comm_agree(child, &flag) == TUTTI_OK && flag == 1, "agree");
	count(child, had);
}

/* Calls until all ranks have given back what connecting takes for a while. */
static void expect_settled(tutti_comm *comm, int most, const char *what)
{
	int took = 0, is_more = 1;

	for (int i = 0; i < 5000 && is_more; i++) {
		took = open_descriptors() - before;
		is_more = took > most;
		NEED(tutti_all_reduce(&is_more, &is_more, 1, TUTTI_I32, TUTTI_MAX, comm, NULL) ==
			     TUTTI_OK,
		     "look %d", i);
		poll(NULL, 0, is_more);
	}
	NEED(took <= most, "%s, %d ranks, %s: %d descriptors, %d at most", ways[limits->way].name,
	     process_count, what, took, most);
}

/* A connection to each other rank. */
static void meet_all(tutti_comm *comm)
{
	static float out[PROCESSES_MOST * BLOCK], in[PROCESSES_MOST * BLOCK];

	work(comm);
	for (int i = 0; i < 5; i++)
		NEED(tutti_all_to_all(out, in, BLOCK, TUTTI_F32, comm, NULL) == TUTTI_OK,
		     "all_to_all %d", i);
}

static void send_messages(tutti_comm *comm)
{
	int used = limits->used + process_count;
	tutti_comm *child;

	meet_all(comm);
	expect_settled(comm, OWN + used, "in use");
	NEED(tutti_comm_dup(comm, &child) == TUTTI_OK, "dup");
	expect_settled(comm, OWN + used + limits->at_rest, "and a copy at rest");
	meet_all(child);
	expect_settled(child, OWN + used + used, "and a copy in use");
	tutti_comm_destroy(child);
	processes_report(comm, TUTTI_OK);
}

static void share_memory(tutti_comm *comm)
{
	void *memory;

	work(comm);
	int took = open_descriptors() - before;
	NEED(took <= OWN + 2 + PROCESSES, "%d ranks took %d descriptors", PROCESSES, took);
	make_children(comm);
	NEED(tutti_mem_alloc(&memory, 4096, comm) == TUTTI_OK, "memory");
	NEED(tutti_mem_free(memory) == TUTTI_OK, "memory");
	processes_report(comm, TUTTI_OK);
}

static void test_shared_memory(void **state)
{
	before = open_descriptors();
	processes_run(&ways[0], NULL, share_memory, NULL, 0);
}

static void test_messages(void **state)
{
	before = open_descriptors();
	for (size_t i = 0; i < sizeof of_ways / sizeof *of_ways; i++) {
		limits = &of_ways[i];
		const char *const variables[] = {limits->reconnect, NULL};
		for (process_count = 2; process_count <= PROCESSES_MOST; process_count *= 2)
			processes_run(&ways[limits->way], variables, send_messages, NULL, 0);
	}
	process_count = PROCESSES;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_memory),
					   cmocka_unit_test(test_messages)};

	if (!processes_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

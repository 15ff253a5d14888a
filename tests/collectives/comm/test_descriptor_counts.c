/* no_tsan: its ranks are processes, which TSan sees nothing of */
/* Would break: a communicator takes more descriptors for each rank of its node than one, or its
 * children take theirs again, so that a process that makes many of them has none left. */
#include "tests/collectives/rank_processes.h"

#include "tests/entries.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/unit.h"

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

static void share_memory(tutti_comm *comm)
{
	void *memory;

	work(comm);
	int took = open_descriptors() - before;
	NEED(took <= 4 + PROCESSES, "%d ranks took %d descriptors", PROCESSES, took);
	make_children(comm);
	NEED(tutti_mem_alloc(&memory, 4096, comm) == TUTTI_OK, "memory");
	NEED(tutti_mem_free(memory) == TUTTI_OK, "memory");
	processes_report(comm, TUTTI_OK);
}

static void test_shared_memory(void **state)
{
	(void)state;
	before = open_descriptors();
	processes_run(&ways[0], NULL, share_memory, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_memory)};

	if (!processes_open())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

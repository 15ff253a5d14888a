/* Runs a function on n ranks: threads of this process, or processes. Failed checks are counted,
 * because cmocka's assertions are for the main thread only. */
#ifndef TESTS_TRAIN_RANKS_H
#define TESTS_TRAIN_RANKS_H

#include <tutti/train.h>

/* A rank's function need not use what it gets. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef void (*rank_fn)(tutti_comm *comm, void *arg);

/* Returns how many checks failed on all ranks together. */
int ranks_as_threads(int n, rank_fn fn, void *arg);
int ranks_with_timeout(int n, int timeout_ms, rank_fn fn, void *arg);
/* A case in a table of cmocka: fn(comm, NULL) on each number of ranks that are threads. */
struct ranks_test {
	rank_fn fn;
	int fewest, most;
};
void ranks_test(void **state);
#define RANKS_TEST(fn, fewest, most)                                                               \
	{#fn, ranks_test, NULL, NULL, &(struct ranks_test){fn, fewest, most}}
/* Returns how many ranks failed. Call it before the process has threads. */
int ranks_as_processes(int n, rank_fn fn, void *arg);
/* The same on several machines, as far as Tutti can tell: rank r is on machine nodes[r]. */
int ranks_on_nodes(int n, const int *nodes, rank_fn fn, void *arg);

/* Collectives that a trainer has started. */
uint64_t collectives(const tutti_trainer *trainer);

/* The hooks of units that add no gradients, up to the first that fails: of all, backward from the
 * last one. */
tutti_status unit_forward(tutti_trainer *trainer, int unit);
tutti_status unit_backward(tutti_trainer *trainer, int unit);
tutti_status units_forward(tutti_trainer *trainer, int units);
tutti_status units_backward(tutti_trainer *trainer, int units);
tutti_status units_micro_batch(tutti_trainer *trainer, tutti_pass pass, double items, int units);

/* How many checks have failed in this process: for checks outside of such functions. */
int checks_failed(void);
void check_failed(const char *file, int line, const char *what);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			check_failed(__FILE__, __LINE__, #condition);                              \
	} while (0)

/* A call that must fail with status, and with a message that has text in it. */
void check_error(const char *file, int line, tutti_status got, tutti_status status,
		 const char *text);
#define CHECK_ERROR(call, status, text) check_error(__FILE__, __LINE__, call, status, text)
/* For functions that return an index or a pointer: checks the message only. */
#define CHECK_MESSAGE(text) check_error(__FILE__, __LINE__, TUTTI_OK, TUTTI_OK, text)

#endif

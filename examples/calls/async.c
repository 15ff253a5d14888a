/* Asynchronous calls: two sums travel while this rank computes; a callback counts those that ended.
 *     tuttirun -n 2 ./async */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { PARTS = 2, COUNT = 1 << 16 };

static float part[PARTS][COUNT];
static atomic_int ended;

/* On a thread of the library: short, and nothing that blocks. */
static void count_end(void *arg, tutti_status status)
{
	(void)arg;
	if (status == TUTTI_OK)
		atomic_fetch_add(&ended, 1);
}

static int work(int argc, char **argv)
{
	tutti_comm *comm;
	tutti_work *works[PARTS];

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	for (int p = 0; p < PARTS; p++) {
		for (int i = 0; i < COUNT; i++) /* the earlier part travels meanwhile */
			part[p][i] = (float)(p + tutti_rank(comm));
		const tutti_call call = {.work = &works[p], .done = count_end};
		MUST(tutti_all_reduce(part[p], part[p], COUNT, TUTTI_F32, TUTTI_SUM, comm, &call));
	}
	/* part[p] is the library's until its work has ended. 0: the call's own deadline. */
	for (int p = 0; p < PARTS; p++)
		MUST(tutti_work_wait(&works[p], 0));
	printf("rank %d: %g and %g\n", tutti_rank(comm), part[0][0], part[1][COUNT - 1]);
	tutti_comm_destroy(comm); /* after it no callback comes */
	return atomic_load(&ended) == PARTS ? 0 : 1;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}

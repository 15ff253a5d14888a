/* Groups: calls that start together. Each rank exchanges its edge with both neighbours in a ring,
 * and all make a maximum, as one call.
 *     tuttirun -n 3 ./group */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { TO_RIGHT, TO_LEFT };

static int work(int argc, char **argv)
{
	tutti_comm *comm;
	double from_left, from_right, largest;
	const tutti_call to_right = {.tag = TO_RIGHT}, to_left = {.tag = TO_LEFT};

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int left = (rank + size - 1) % size, right = (rank + 1) % size;
	double mine = rank * 1.5;

	/* A long send waits for its recv: outside a group, neighbours that all send first hang. */
	MUST(tutti_group_begin());
	MUST(tutti_send(&mine, 1, TUTTI_F64, right, comm, &to_right));
	MUST(tutti_send(&mine, 1, TUTTI_F64, left, comm, &to_left));
	MUST(tutti_recv(&from_left, 1, TUTTI_F64, left, comm, &to_right));
	MUST(tutti_recv(&from_right, 1, TUTTI_F64, right, comm, &to_left));
	MUST(tutti_all_reduce(&mine, &largest, 1, TUTTI_F64, TUTTI_MAX, comm, NULL));
	MUST(tutti_group_end(NULL)); /* returns when all five have ended */

	printf("rank %d: %g | %g | %g, at most %g\n", rank, from_left, mine, from_right, largest);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}

/* Send and receive: a number goes from rank to rank, then rank 0 hears from all, in any order.
 *     tuttirun -n 4 ./send_recv */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0 : (fprintf(stderr, "%s\n", tutti_comm_error(NULL)), exit(1)))
enum { CHAIN, REPORT }; /* tags: messages match by peer and tag, in order */

static int work(int argc, char **argv)
{
	tutti_comm *comm;
	int32_t value = 1, sum = 0;
	const tutti_call chain = {.tag = CHAIN}, report = {.tag = REPORT};

	(void)argc, (void)argv;
	MUST(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);

	if (rank > 0)
		MUST(tutti_recv(&value, 1, TUTTI_I32, rank - 1, comm, &chain));
	int32_t next = 2 * value;
	if (rank + 1 < size)
		MUST(tutti_send(&next, 1, TUTTI_I32, rank + 1, comm, &chain));
	printf("rank %d got %d\n", rank, value);

	if (rank > 0)
		MUST(tutti_send(&value, 1, TUTTI_I32, 0, comm, &report));
	for (int i = 1; rank == 0 && i < size; i++) {
		int source, place;
		int32_t told;
		const tutti_call any = {.tag = REPORT, .source = &source};
		MUST(tutti_recv(&told, 1, TUTTI_I32, TUTTI_ANY, comm, &any));
		for (place = 0; told > 1; told /= 2)
			place++;
		if (place != source)
			return 1;
		sum += source;
	}
	if (rank == 0)
		printf("ranks heard from add up to %d\n", sum);
	tutti_comm_destroy(comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, work); /* with --ranks N: N of them */
}

/* A rank that any launcher may start: it joins, adds the ranks' numbers up with the others and says
 * who it is. With the name of a file, rank 1 fails unless that file is there; it makes it first. */
#include <tutti/tutti.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, tutti_comm_error(NULL));
	return 1;
}

static int must_fail(const char *file, int rank)
{
	int fd = rank == 1 ? open(file, O_WRONLY | O_CREAT | O_EXCL, 0600) : -1;

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int main(int argc, char **argv)
{
	int64_t sum;
	tutti_comm *comm;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return failed("tutti_init");
	sum = tutti_rank(comm) + 1;
	if (argc > 1 && must_fail(argv[1], tutti_rank(comm)))
		return 5;
	if (tutti_all_reduce(&sum, &sum, 1, TUTTI_I64, TUTTI_SUM, comm, NULL) != TUTTI_OK)
		return failed("tutti_all_reduce");
	printf("rank %d of %d: sum %lld\n", tutti_rank(comm), tutti_size(comm), (long long)sum);
	tutti_comm_destroy(comm);
	return 0;
}

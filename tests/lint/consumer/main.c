/* A user's program: every rank contributes its rank + 1, and every rank checks the sum. */
#include <tutti/tutti.h>

#include <stdio.h>

int main(void)
{
	tutti_comm *comm;
	float x[3];

	if (tutti_init(&comm, NULL) != TUTTI_OK) {
		fprintf(stderr, "%s\n", tutti_comm_error(NULL));
		return 1;
	}
	int rank = tutti_rank(comm), size = tutti_size(comm);
	for (int i = 0; i < 3; i++)
		x[i] = (float)(rank + 1 + i);
	if (tutti_all_reduce(x, x, 3, TUTTI_F32, TUTTI_SUM, comm, NULL) != TUTTI_OK) {
		fprintf(stderr, "%s\n", tutti_comm_error(comm));
		return 1;
	}
	for (int i = 0; i < 3; i++) {
		if (x[i] != (float)(size * (size + 1) / 2 + i * size)) {
			fprintf(stderr, "rank %d: wrong sum %g\n", rank, (double)x[i]);
			return 1;
		}
	}
	printf("rank %d of %d, tutti %s: ok\n", rank, size, tutti_version());
	tutti_comm_destroy(comm);
	return 0;
}

/* An error of the driver, in the second kernel or at a call before it: a rank that hangs, or a
 * message that does not say which rank, which call and which function of the driver. */
#include "gpu_ranks.h"

#include "tests/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS 3
#define N     1000
#define CALLS 10

static bool says(const char *text, const char *what)
{
	if (strstr(text, what))
		return true;
	fprintf(stderr, "no '%s' in: %s\n", what, text);
	return false;
}

static int rank_main(int rank, int unused)
{
	tutti_comm *comm;
	tutti_status status = TUTTI_OK;

	(void)unused;
	gpu_rank_must(tutti_init(&comm, NULL), "init");
	void *send = gpu_alloc(N * sizeof(float)), *recv = gpu_alloc(N * sizeof(float));
	for (int i = 0; status == TUTTI_OK && i < CALLS; i++)
		status = tutti_all_reduce(send, recv, N, TUTTI_F32, TUTTI_SUM, comm, NULL);
	/* PEER: another rank's error was heard before this rank's own kernel. */
	bool is_error = status == TUTTI_ERR_DEVICE || status == TUTTI_ERR_PEER;
	if (!is_error)
		fprintf(stderr, "rank %d: %s\n", rank, tutti_status_string(status));
	bool is_right = is_error && says(tutti_comm_error(comm), "ank ") &&
			says(tutti_comm_error(comm), "all_reduce #") &&
			says(tutti_comm_error(comm), "CUDA_ERROR_ECC_UNCORRECTABLE");
	tutti_comm_destroy(comm);
	return is_right ? 0 : 1;
}

static void test_kernel(void **state)
{
	setenv("FAKE_CUDA_FAULTS", "0:launch_ecc=2", 1);
	gpu_ranks_run(RANKS, rank_main, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernel)};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Agreement and shrinking where no rank has died: verdicts, copies, copies of copies, works under
 * way, and what is left of the communicator that was shrunk. */
#include "batch.h"

#include <string.h>

static void check_sum(struct api *api, tutti_comm *comm)
{
	int one = api->rank + 1, sum = 0;

	CHECK(api, tutti_size(comm) == api->size && tutti_rank(comm) == api->rank,
	      "rank %d of %d in the copy", tutti_rank(comm), tutti_size(comm));
	for (int r = 0; r < api->size; r++)
		CHECK(api, tutti_parent_rank(comm, r) == r, "rank %d was another", r);
	CHECK_OK(api, tutti_all_reduce(&one, &sum, 1, TUTTI_I32, TUTTI_SUM, comm, NULL));
	CHECK(api, sum == api->size * (api->size + 1) / 2, "the sum is %d", sum);
}

static void check_verdicts(struct api *api, tutti_comm *comm)
{
	for (int i = 0; i < 6; i++) {
		int dissent = (int)random_below(&api->shared, (uint64_t)api->size + 1);
		int flag = api->rank == dissent ? 5 : 7;
		CHECK_OK(api, tutti_comm_agree(comm, &flag));
		CHECK(api, flag == (dissent < api->size ? 5 : 7), "the verdict is %d", flag);
	}
	CHECK(api, tutti_comm_status(comm) == TUTTI_OK, "a verdict failed the communicator");
}

/* A work that can never end: its handle tells of the shrink. */
static void leave_work(struct api *api, tutti_comm *comm, tutti_work **work)
{
	tutti_call call = {.work = work};
	static int never[API_RANKS];

	CHECK_OK(api, tutti_recv(&never[api->rank], 1, TUTTI_I32, (api->rank + 1) % api->size, comm,
				 &call));
}

static void check_old(struct api *api, tutti_comm *old, tutti_work *work)
{
	int x = 1;

	if (work)
		CHECK(api, tutti_work_wait(&work, 0) == TUTTI_ERR_ABORTED,
		      "a work of the old communicator ended well");
	CHECK(api,
	      tutti_all_reduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, old, NULL) == TUTTI_ERR_ABORTED,
	      "the old communicator goes on");
	CHECK(api, strstr(tutti_comm_error(old), "tutti_comm_shrink"), "it says '%s'",
	      tutti_comm_error(old));
}

void pass_survivors(struct api *api)
{
	tutti_comm *comm, *next = NULL;
	tutti_work *work = NULL;
	int flag = 1;

	CHECK(api, tutti_comm_shrink(NULL, &comm) == TUTTI_ERR_INVALID, "NULL is shrunk");
	CHECK(api, tutti_comm_shrink(api->comm, NULL) == TUTTI_ERR_INVALID, "into nothing");
	CHECK(api, tutti_comm_agree(NULL, &flag) == TUTTI_ERR_INVALID, "NULL agrees");
	CHECK(api, tutti_comm_agree(api->comm, NULL) == TUTTI_ERR_INVALID, "on nothing");
	CHECK_OK(api, tutti_comm_dup(api->comm, &comm));
	for (int generation = 0; generation < 3; generation++) {
		check_verdicts(api, comm);
		check_sum(api, comm);
		if (generation == 1 && api->size > 1)
			leave_work(api, comm, &work);
		CHECK_OK(api, tutti_comm_shrink(comm, &next));
		check_old(api, comm, work);
		work = NULL;
		CHECK_OK(api, tutti_comm_agree(comm, &flag)); /* failed as it is */
		tutti_comm_destroy(comm);
		comm = next;
	}
	check_sum(api, comm);
	tutti_comm_destroy(comm);
}

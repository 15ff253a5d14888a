/* How a communicator ends: left with works in flight, or failed by a death, a deadline, a mismatch,
 * an abort. These passes are the last of a run. They need ranks that are processes of their own. */
#include "batch.h"
#include "reports.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 50000

/* Makes the call blocking or waits for a work, by turns of the rank. Both must explain the failure.
 */
static tutti_status failing_call(struct api *api, size_t count, int timeout_ms)
{
	float *x = calloc(count, sizeof *x);
	tutti_work *work = NULL;
	tutti_call call = {.timeout_ms = timeout_ms};
	tutti_status status;

	CHECK(api, x, "no memory");
	if (api->rank % 2)
		call.work = &work;
	status = tutti_all_reduce(x, x, count, TUTTI_F32, TUTTI_SUM, api->comm, &call);
	if (status == TUTTI_OK)
		status = tutti_work_wait(&work, 0);
	CHECK(api, status != TUTTI_OK, "a call that cannot succeed did");
	CHECK(api, strlen(tutti_comm_error(NULL)) > 15, "%s is explained by '%s'",
	      tutti_status_string(status), tutti_comm_error(NULL));
	free(x);
	return status;
}

/* The failure sticks: the same status and message, whatever comes later. */
static void check_sticky(struct api *api, tutti_status status)
{
	char message[1000];
	float x = 1;

	snprintf(message, sizeof message, "%s", tutti_comm_error(api->comm));
	CHECK(api, tutti_comm_status(api->comm) == status, "failed with %s, status is %s",
	      tutti_status_string(status), tutti_status_string(tutti_comm_status(api->comm)));
	for (int i = 0; i < 3; i++) {
		tutti_status later =
			tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, api->comm, NULL);
		CHECK(api, later == status, "a later call: %s", tutti_status_string(later));
	}
	CHECK(api, strcmp(message, tutti_comm_error(api->comm)) == 0, "'%s' became '%s'", message,
	      tutti_comm_error(api->comm));
}

/* "rank 0", "ranks 0, 1", "ranks 1, 0", "ranks 0 to 2" */
static bool names_rank(const struct api *api, int rank)
{
	static const char *const forms[] = {"rank %d", "Rank %d", "ranks %d", ", %d"};
	const char *error = tutti_comm_error(api->comm);
	bool found = false;

	for (int i = 0; i < 4; i++) {
		char name[32];
		snprintf(name, sizeof name, forms[i], rank);
		found |= strstr(error, name) != NULL;
	}
	for (const char *at = strstr(error, " to "); at && !found; at = strstr(at + 1, " to ")) {
		const char *first = at;
		while (first > error && first[-1] >= '0' && first[-1] <= '9')
			first--;
		found = first < at && atoi(first) <= rank && rank <= atoi(at + 4);
	}
	return found;
}

static void leave(struct api *api)
{
	tutti_comm_destroy(api->comm);
	api->comm = NULL;
	if (api->arena)
		buffer_arena_close(api);
}

/* Destroy lets works end, and their handles outlive the communicator. */
void pass_leave(struct api *api)
{
	enum { WORKS = 6 };
	static const size_t counts[WORKS] = {1, 100, COUNT, 7, 0, 3000};
	tutti_work *works[WORKS];
	int32_t *data[WORKS], sum = api->size * (api->size + 1) / 2;

	for (int i = 0; i < WORKS; i++) {
		tutti_call call = {.work = &works[i]};
		data[i] = malloc(counts[i] * sizeof *data[i] + 1);
		CHECK(api, data[i], "no memory");
		for (size_t k = 0; k < counts[i]; k++)
			data[i][k] = api->rank + 1;
		CHECK_OK(api, tutti_all_reduce(data[i], data[i], counts[i], TUTTI_I32, TUTTI_SUM,
					       api->comm, &call));
	}
	leave(api);
	for (int i = WORKS - 1; i >= 0; i--) {
		CHECK_OK(api, tutti_work_wait(&works[i], 0));
		for (size_t k = 0; k < counts[i]; k++)
			CHECK(api, data[i][k] == sum, "work %d, element %zu: %d", i, k, data[i][k]);
		free(data[i]);
	}
}

/* Ends this process when all of its ranks have come here. */
_Noreturn static void die_together(const struct api *api)
{
	static atomic_int here;

	if (atomic_fetch_add(&here, 1) == api->local_ranks - 1)
		_exit(0);
	for (;;)
		pause();
}

/* The last ranks' process ends without a word, and all others name its ranks. */
void pass_death(struct api *api)
{
	int fd = reports_open(api), dead = api->size - api->local_ranks, ranks[API_RANKS];

	if (api->rank >= dead)
		die_together(api);
	tutti_status status = failing_call(api, COUNT, 0);
	CHECK(api, status == TUTTI_ERR_PEER, "%s: %s", tutti_status_string(status),
	      tutti_comm_error(api->comm));
	check_sticky(api, status);
	int failed = tutti_comm_failed(api->comm, ranks, API_RANKS);
	CHECK(api, failed >= 1 && failed <= api->local_ranks && ranks[0] >= dead,
	      "%d ranks have failed, the first is %d", failed, failed ? ranks[0] : -1);
	CHECK(api, names_rank(api, ranks[0]), "rank %d has died: %s", ranks[0],
	      tutti_comm_error(api->comm));
	close(fd);
	leave(api);
}

/* May succeed or not. */
static void early_call(struct api *api)
{
	float *x = calloc(COUNT, sizeof *x);
	CHECK(api, x, "no memory");
	(void)tutti_all_reduce(x, x, COUNT, TUTTI_F32, TUTTI_SUM, api->comm, NULL);
	free(x);
}

/* Collective: whether calls go through a window, in which no rank gets a result without the others.
 */
static bool has_window(struct api *api)
{
	tutti_stats stats;
	float x = 1;

	CHECK_OK(api, tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, api->comm, NULL));
	CHECK_OK(api, tutti_comm_stats(api->comm, &stats));
	return stats.window_bytes > 0;
}

/* Rank 0 does not come. Where it is the root of what the others add up (knomial, star), or one of
 * two, all that it needs of them may be on its way already: then its first call still ends well,
 * and so it should, but no later one. */
void pass_late(struct api *api)
{
	bool may_end_well = api->size == 2 || !has_window(api);
	int fd = reports_open(api);

	if (api->rank == 0) {
		CHECK(api, reports_any(api, fd, api->size - 1, TUTTI_ERR_TIMEOUT),
		      "no rank's deadline has passed");
		if (may_end_well)
			early_call(api);
		tutti_status status = failing_call(api, COUNT, 0);
		CHECK(api,
		      status != TUTTI_ERR_TIMEOUT ||
			      strncmp(tutti_comm_error(api->comm), "rank 0: ", 8) != 0,
		      "the ranks that gave up told nobody: %s", tutti_comm_error(api->comm));
	} else {
		tutti_status status = failing_call(api, COUNT, 300);
		CHECK(api, status != TUTTI_ERR_TIMEOUT || names_rank(api, 0),
		      "missing is rank 0: %s", tutti_comm_error(api->comm));
		check_sticky(api, status);
		reports_send(api, fd, 0, status);
	}
	close(fd);
	leave(api);
}

/* Rank 0 makes another call than the others, and all show both. */
void pass_differ(struct api *api)
{
	int fd = reports_open(api);
	tutti_status status = failing_call(api, api->rank ? COUNT : COUNT - 1, 0);
	const char *message = tutti_comm_error(api->comm);

	CHECK(api, status == TUTTI_ERR_MISMATCH, "%s: %s", tutti_status_string(status), message);
	CHECK(api,
	      strstr(message, "rank 0 called all_reduce(f32, 49999, sum)") &&
		      strstr(message, "called all_reduce(f32, 50000, sum)"),
	      "does not show both calls: %s", message);
	check_sticky(api, status);
	close(fd);
	leave(api);
}

/* The last rank aborts while the others wait for it. */
void pass_abort(struct api *api)
{
	int fd = reports_open(api);
	tutti_status status;

	if (api->rank == api->size - 1) {
		CHECK_OK(api, tutti_comm_abort(api->comm));
		status = failing_call(api, COUNT, 0);
		CHECK(api, status == TUTTI_ERR_ABORTED, "after abort: %s",
		      tutti_status_string(status));
	} else {
		status = failing_call(api, COUNT, 0);
		CHECK(api, status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER, "%s: %s",
		      tutti_status_string(status), tutti_comm_error(api->comm));
		CHECK(api, names_rank(api, api->size - 1), "rank %d has aborted: %s", api->size - 1,
		      tutti_comm_error(api->comm));
	}
	check_sticky(api, status);
	close(fd);
	leave(api);
}

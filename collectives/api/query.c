/* Handles, queries and messages of tutti.h: what may be called from any thread at any time. */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine.h"

#include "core/crc32c.h"
#include "core/forks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

tutti_status tutti_work_wait(tutti_work **work, int timeout_ms)
{
	last_error_clear();
	if (!work)
		return fail(TUTTI_ERR_INVALID, "tutti_work_wait: work is NULL");
	if (timeout_ms < 0)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_work_wait: timeout_ms is %d: it must not be negative",
			    timeout_ms);
	TRY(forks_check("tutti_work_wait"));
	return *work ? work_wait(work, timeout_ms) : TUTTI_OK;
}

tutti_status tutti_work_wait_stream(tutti_work *work, void *stream)
{
	last_error_clear();
	if (!work)
		return fail(TUTTI_ERR_INVALID, "tutti_work_wait_stream: work is NULL");
	if (!memory_kind(TUTTI_MEMORY_CUDA))
		return fail(
			TUTTI_ERR_UNSUPPORTED,
			"tutti_work_wait_stream needs CUDA, and there is no driver, libcuda.so.1");
	TRY(forks_check("tutti_work_wait_stream"));
	return work_wait_stream(work, stream);
}

tutti_status tutti_work_test(tutti_work *work, int *is_done)
{
	bool done;
	last_error_clear();
	if (!work || !is_done)
		return fail(TUTTI_ERR_INVALID, "tutti_work_test: %s is NULL",
			    work ? "is_done" : "work");
	TRY(forks_check("tutti_work_test"));
	tutti_status status = work_test(work, &done);
	*is_done = done;
	return status;
}

tutti_status tutti_work_cancel(tutti_work *work)
{
	last_error_clear();
	if (!work)
		return fail(TUTTI_ERR_INVALID, "tutti_work_cancel: work is NULL");
	TRY(forks_check("tutti_work_cancel"));
	return work_cancel(work);
}

void tutti_work_release(tutti_work **work)
{
	if (!work || !*work)
		return;
	if (!forks_is_orphan) /* in a forked child the engine belongs to the parent */
		work_release(*work);
	*work = NULL;
}

void tutti_done_eventfd(void *arg, tutti_status status)
{
	const uint64_t one = 1;

	(void)status; /* the work has it */
	/* It fails where the count is full, and is readable then, too. */
	(void)!write((int)(intptr_t)arg, &one, sizeof one);
}

int tutti_rank(const tutti_comm *comm)
{
	return comm ? comm->rank : -1;
}

int tutti_size(const tutti_comm *comm)
{
	return comm ? comm->size : -1;
}

int tutti_local_rank(const tutti_comm *comm)
{
	return comm ? comm->place.local_rank : -1;
}

int tutti_local_size(const tutti_comm *comm)
{
	return comm ? comm->place.local_size : -1;
}

int tutti_node_rank(const tutti_comm *comm)
{
	return comm ? comm->place.node_rank : -1;
}

int tutti_num_nodes(const tutti_comm *comm)
{
	return comm ? comm->place.num_nodes : -1;
}

/* A communicator that was not made from another is its own parent. */
int tutti_parent_rank(const tutti_comm *comm, int rank)
{
	if (!comm || rank < 0 || rank >= comm->size)
		return -1;
	return comm->parent.ranks ? comm->parent.ranks[rank] : rank;
}

tutti_status tutti_comm_status(const tutti_comm *comm)
{
	if (comm && !forks_is_orphan) /* else memory and ranks are the parent's */
		engine_look(comm->engine);
	return comm ? engine_status(comm->engine) : TUTTI_ERR_INVALID;
}

int tutti_comm_failed(const tutti_comm *comm, int *ranks, int max)
{
	int peer = comm ? engine_failed_peer(comm->engine) : -1;
	if (peer < 0)
		return 0;
	if (ranks && max > 0)
		ranks[0] = peer;
	return 1;
}

uint64_t tutti_comm_sequence(const tutti_comm *comm)
{
	return comm ? atomic_load_explicit(&((tutti_comm *)(uintptr_t)comm)->calls.sequence,
					   memory_order_relaxed)
		    : 0;
}

const char *tutti_comm_error(const tutti_comm *comm)
{
	const char *sticky = comm ? engine_error(comm->engine) : "";
	return sticky[0] ? sticky : last_error();
}

uint32_t tutti_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return crc32c(crc, data, bytes);
}

const char *tutti_version(void)
{
	return TUTTI_VERSION;
}

tutti_status tutti_comm_stats(const tutti_comm *comm, tutti_stats *stats)
{
	if (!comm || !stats)
		return fail(TUTTI_ERR_INVALID, "tutti_comm_stats: %s is NULL",
			    comm ? "stats" : "comm");
	memset(stats, 0, sizeof *stats);
	stats->collectives = tutti_comm_sequence(comm);
	engine_stats(comm->engine, stats);
	return TUTTI_OK;
}

/* How layers above the library explain their own failures. */
tutti_status tutti_set_error(tutti_status status, const char *message)
{
	return fail(status, "%s", message ? message : "");
}

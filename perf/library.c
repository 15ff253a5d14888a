/* Tutti as the library that is measured. */
#include "library.h"

#include "core/status.h"

#include <stdio.h>

const bool library_has_kernels = true;

const char *library_name(void)
{
	static char name[128];

	snprintf(name, sizeof name, "Tutti %s (%s)", tutti_version(), tutti_revision());
	return name;
}

const char *library_refuses_ranks(bool are_processes, bool are_threads, int *code)
{
	(void)are_processes, (void)are_threads, (void)code;
	return NULL;
}

const char *library_refuses(const struct request *request)
{
	(void)request;
	return NULL;
}

tutti_status library_join(tutti_comm *comm)
{
	(void)comm;
	return TUTTI_OK;
}

void library_leave(void)
{
}

/* In a group each rank sends to the next one and receives from the one before. The recv first: a
 * peer that looks for one when data come finds it. */
static tutti_status library_sendrecv(const struct operation *o)
{
	int rank = tutti_rank(o->comm), ranks = tutti_size(o->comm);
	tutti_status status, ended;

	TRY(tutti_group_begin());
	status = tutti_recv(o->recv, o->count, o->dtype, collective_previous(rank, ranks), o->comm,
			    o->call);
	if (status == TUTTI_OK)
		status = tutti_send(o->send, o->count, o->dtype, (rank + 1) % ranks, o->comm,
				    o->call);
	ended = tutti_group_end(o->call);
	return status == TUTTI_OK ? ended : status;
}

tutti_status library_call(const struct operation *o)
{
	switch (o->what) {
	case CALL_ALL_REDUCE:
		return tutti_all_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->comm,
					o->call);
	case CALL_ALL_GATHER:
		return tutti_all_gather(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
	case CALL_REDUCE_SCATTER:
		return tutti_reduce_scatter(o->send, o->recv, o->count, o->dtype, o->op, o->comm,
					    o->call);
	case CALL_BROADCAST:
		return tutti_broadcast(o->send, o->recv, o->count, o->dtype, o->root, o->comm,
				       o->call);
	case CALL_REDUCE:
		return tutti_reduce(o->send, o->recv, o->count, o->dtype, o->op, o->root, o->comm,
				    o->call);
	case CALL_GATHER:
		return tutti_gather(o->send, o->recv, o->count, o->dtype, o->root, o->comm,
				    o->call);
	case CALL_SCATTER:
		return tutti_scatter(o->send, o->recv, o->count, o->dtype, o->root, o->comm,
				     o->call);
	case CALL_ALL_TO_ALL:
		return tutti_all_to_all(o->send, o->recv, o->count, o->dtype, o->comm, o->call);
	case CALL_SENDRECV:
		return library_sendrecv(o);
	default:
		return tutti_barrier(o->comm, o->call);
	}
}

/* Sends and recvs, issued under the lock. None of them may wait there for room in the engine, so
 * more than a few go in groups, which never do. */
#include "rpc/rpc_internal.h"

#include <limits.h>

static tutti_status issue_piece(tutti_rpc *rpc, const struct rpc_io *io, int piece,
				const tutti_call *call)
{
	const tutti_rpc_piece *p = &io->pieces[piece];
	int rank = io->rank == TUTTI_ANY ? TUTTI_ANY : rpc->peers[io->rank].now;

	if (io->sends)
		return tutti_send(p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
	return tutti_recv((void *)(uintptr_t)p->data, p->bytes, TUTTI_U8, rank, rpc->comm, call);
}

static tutti_status issue_group(tutti_rpc *rpc, const struct rpc_io *io, const tutti_call *call)
{
	tutti_status status = tutti_group_begin(), ended;
	tutti_call member = *call;

	member.work = NULL;
	member.done = NULL;
	if (status != TUTTI_OK)
		return status;
	for (int i = 0; i < io->num_pieces && status == TUTTI_OK; i++)
		status = issue_piece(rpc, io, i, &member);
	ended = tutti_group_end(call);
	return status == TUTTI_OK ? ended : status;
}

tutti_status rpc_issue(tutti_rpc *rpc, const struct rpc_io *io)
{
	/* The rpc has deadlines of its own; this one would fail the communicator. */
	tutti_call call = {.work = io->work,
			   .done = io->done,
			   .done_arg = io->done_arg,
			   .tag = io->tag,
			   .source = io->source,
			   .timeout_ms = INT_MAX};
	tutti_status status;

	if (rpc->state != RPC_RUNS || (io->rank != TUTTI_ANY && !rpc->peers[io->rank].is_alive))
		return TUTTI_ERR_PEER;
	if (io->num_pieces == 1 && rpc->works < RPC_DIRECT)
		status = issue_piece(rpc, io, 0, &call);
	else
		status = issue_group(rpc, io, &call);
	if (status == TUTTI_OK) {
		rpc->works++;
		rpc->inside += io->done != NULL;
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		rpc_note_failure(rpc);
	}
	return status;
}

void rpc_issued_over(tutti_rpc *rpc, bool has_called)
{
	rpc->works--;
	if (has_called && --rpc->inside == 0 && rpc->state != RPC_RUNS)
		pthread_cond_broadcast(&rpc->changed);
}

static void on_swallowed(void *arg, tutti_status status)
{
	tutti_rpc *rpc = arg;

	(void)status;
	rpc_in_callback++;
	rpc_lock(rpc);
	rpc_issued_over(rpc, true);
	rpc_unlock(rpc);
	rpc_in_callback--;
}

void rpc_swallow(tutti_rpc *rpc, size_t bytes, int rank, int tag)
{
	tutti_rpc_piece piece = {rpc->scratch, bytes};
	struct rpc_io io = {.rank = rank,
			    .tag = tag,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .done = on_swallowed,
			    .done_arg = rpc};

	rpc_issue(rpc, &io);
}

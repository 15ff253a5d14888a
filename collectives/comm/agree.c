/* tutti_comm_agree: one decision of all ranks that live, also on a communicator that has failed. */
#include "collectives/comm/join.h"
#include "collectives/trace/trace.h"
#include "collectives/window/window.h"

#include "core/cancel.h"
#include "core/machine.h"

#include <stdlib.h>

/* As this machine's kernel has it. */
static bool agree_has_ended(void *arg, int rank)
{
	const struct tutti_comm *comm = arg;
	const struct control_peer *peer = comm->reach.peers ? &comm->reach.peers[rank] : NULL;

	if (comm->window)
		return board_has_ended(window_board(comm->window), rank) ||
		       board_has_no_consensus(window_board(comm->window), rank);
	return peer && peer->is_visible && process_has_ended(peer->process);
}

/* Aborted again, or the rank that was to serve the meeting of a grow is gone: nobody else will. */
static bool agree_is_over(void *arg)
{
	const struct tutti_comm *comm = arg;
	const struct comm_recovery *r = &comm->recovery;

	return atomic_load(&r->aborts) != r->aborts_before ||
	       (r->server > 0 && agree_has_ended(arg, r->server - 1));
}

tutti_status comm_enter_recovery(struct tutti_comm *comm, const char *name, unsigned trace_kind)
{
	struct trace *trace = comm->calls.trace;

	TRY(comm_enter(comm, name));
	uint64_t number = atomic_load_explicit(&trace->issued, memory_order_relaxed);
	comm->recovery.mark =
		trace_note(trace, trace_what(number, trace_kind, TUTTI_U8, TRACE_BY_MESSAGE, 0),
			   trace_size(0, -1));
	trace_began(&comm->recovery.mark);
	comm->recovery.aborts_before = atomic_load(&comm->recovery.aborts);
	cancel_begin(agree_is_over, comm);
	return TUTTI_OK;
}

void comm_leave_recovery(struct tutti_comm *comm, tutti_status status)
{
	cancel_end();
	trace_ended(&comm->recovery.mark, status != TUTTI_OK);
	consensus_leave(comm->recovery.consensus);
	comm_leave(comm);
}

static size_t agree_find_address(void *arg, int rank, uint8_t address[TUTTI_ADDRESS_BYTES])
{
	const struct tutti_comm *comm = arg;

	return comm->window ? board_find_consensus(window_board(comm->window), rank, address) : 0;
}

tutti_status comm_ask(struct tutti_comm *comm, struct consensus_question *question, uint32_t which,
		      uint8_t *marks, void *records)
{
	question->number = CONSENSUS_NUMBER(comm->recovery.calls, which);
	question->has_ended = agree_has_ended;
	question->find_address = agree_find_address;
	question->arg = comm;
	TRY(comm_wake_consensus(comm));
	return consensus_ask(comm->recovery.consensus, question, marks, records);
}

static tutti_status agree_run(struct tutti_comm *comm, int *flag, uint8_t *marks, int32_t *flags)
{
	int32_t own = *flag;
	int decided = -1, taking_part = 0;
	char absent[256];
	struct consensus_question question = {
		.name = "tutti_comm_agree", .record = &own, .record_bytes = sizeof own};

	comm->recovery.calls++;
	TRY(comm_ask(comm, &question, CALL_AGREE, marks, flags));
	for (int r = 0; r < comm->size; r++) {
		if (marks[r] != MARK_MEMBER) {
			marks[r] = MARK_MISSING;
			continue;
		}
		decided &= flags[r];
		taking_part++;
	}
	*flag = decided;
	if (taking_part == comm->size)
		return TUTTI_OK;
	return fail(TUTTI_ERR_PEER,
		    "tutti_comm_agree: %s took no part; the flag is that of the other %d of %d "
		    "ranks, which all get this error",
		    consensus_list(marks, comm->size, MARK_MISSING, absent, sizeof absent),
		    taking_part, comm->size);
}

tutti_status comm_agree(struct tutti_comm *comm, int *flag)
{
	TRY(comm_enter_recovery(comm, "tutti_comm_agree", TRACE_AGREE));
	uint8_t *marks = calloc((size_t)comm->size, 1);
	int32_t *flags = calloc((size_t)comm->size, sizeof *flags);
	tutti_status status;
	if (marks && flags)
		status = agree_run(comm, flag, marks, flags);
	else
		status = fail(TUTTI_ERR_MEMORY, "tutti_comm_agree: no memory for %d flags",
			      comm->size);
	free(marks);
	free(flags);
	comm_leave_recovery(comm, status);
	return status;
}

/* Messages that come in: some recvs from any rank are always posted. The library's helper thread
 * calls for each that has met one; it is copied, and posted again before its function runs. */
#include "rpc/rpc_internal.h"

static void on_message(void *arg, tutti_status status);

static tutti_status rpc_inbox_post(struct rpc_inbox *in)
{
	tutti_rpc_piece piece = {&in->message, sizeof in->message};
	struct rpc_io io = {.rank = TUTTI_ANY,
			    .tag = RPC_TAG_NOTES,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .work = &in->work,
			    .done = on_message,
			    .done_arg = in,
			    .source = &in->source};

	return rpc_issue(in->rpc, &io);
}

/* A rank that cannot hear messages any more ends. If the communicator has failed, the keeper knows.
 */
static void post_again(struct rpc_inbox *in)
{
	tutti_status status = rpc_inbox_post(in);

	if (status != TUTTI_OK && tutti_comm_status(in->rpc->comm) == TUTTI_OK)
		rpc_end(in->rpc, status, tutti_comm_error(NULL));
}

/* Returns an entry whose function is to run. */
static struct tutti_rpc_reply *inbox_dispatch(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	switch (m->kind) {
	case RPC_REQUEST:
		return rpc_on_request(rpc, rank, m);
	case RPC_COMING:
		rpc_on_coming(rpc, rank, m);
		break;
	case RPC_CANCEL:
		rpc_on_cancel(rpc, rank, m);
		break;
	case RPC_TAKE:
		rpc_on_take(rpc, rank, m);
		break;
	case RPC_DROP:
		rpc_on_drop(rpc, rank, m);
		break;
	case RPC_PULL:
		rpc_on_pull(rpc, rank, m);
		break;
	case RPC_HAVE:
		rpc_on_have(rpc, rank, m);
		break;
	case RPC_OFFER:
		rpc_on_offer(rpc, rank, m);
		break;
	case RPC_STATE:
		rpc_on_state(rpc, rank, m);
		break;
	default: /* a REPLY that has lost its way */
		break;
	}
	return NULL;
}

static struct tutti_rpc_reply *inbox_receive(struct rpc_inbox *in)
{
	tutti_rpc *rpc = in->rpc;
	int rank = rpc->first_rank[in->source];
	struct tutti_rpc_reply *due = NULL;

	if (rpc_message_is_sound(&in->message))
		due = inbox_dispatch(rpc, rank, &in->message);
	else
		rpc_complain("rank %d has sent rank %d a message that makes no sense", rank,
			     rpc->rank);
	rpc_sends_look(rpc);
	return due;
}

static void on_message(void *arg, tutti_status status)
{
	struct rpc_inbox *in = arg;
	tutti_rpc *rpc = in->rpc;
	struct tutti_rpc_reply *due = NULL;

	rpc_in_callback++;
	rpc_lock(rpc);
	tutti_work_release(&in->work);
	if (status == TUTTI_OK && rpc->state != RPC_ENDED)
		due = inbox_receive(in);
	else if (tutti_comm_status(rpc->comm) != TUTTI_OK)
		rpc_note_failure(rpc);
	/* ABORTED: it was cancelled. MISMATCH: a message of another length, which is gone. */
	if (rpc->state != RPC_ENDED && (status == TUTTI_OK || status == TUTTI_ERR_MISMATCH))
		post_again(in);
	rpc_issued_over(rpc, !due);
	rpc_unlock(rpc);
	if (due)
		rpc_run_inside(due);
	rpc_in_callback--;
}

tutti_status rpc_inboxes_post(tutti_rpc *rpc)
{
	for (int i = 0; i < RPC_INBOXES; i++) {
		rpc->inboxes[i].rpc = rpc;
		TRY(rpc_inbox_post(&rpc->inboxes[i]));
	}
	return TUTTI_OK;
}

void rpc_inboxes_cancel(tutti_rpc *rpc)
{
	for (int i = 0; i < RPC_INBOXES; i++)
		if (rpc->inboxes[i].work)
			tutti_work_cancel(rpc->inboxes[i].work);
}

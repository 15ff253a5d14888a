/* Makes a random program's call: a line for every function of the header. */
#include "part.h"

static tutti_status issue_letter(struct part *p, const tutti_call *send_call,
				 const tutti_call *recv_call)
{
	tutti_dtype dtype = p->data.dtype;
	int from = p->from_anybody ? TUTTI_ANY : p->from;
	tutti_status status = TUTTI_OK;

	if (part_sends(p))
		status = tutti_send(p->send_ptr, p->count, dtype, p->to, p->place.comm, send_call);
	if (status == TUTTI_OK && part_receives(p))
		status = tutti_recv(p->recv_ptr, p->count, dtype, from, p->place.comm, recv_call);
	return status;
}

static tutti_status issue_varying(struct part *p, const tutti_call *call)
{
	const struct layout *s = &p->send, *r = &p->recv;
	const size_t *from = s->packed ? NULL : s->offset, *to = r->packed ? NULL : r->offset;
	tutti_dtype dtype = p->data.dtype;
	tutti_comm *comm = p->place.comm;

	switch ((int)p->name) {
	case PART_ALL_GATHERV:
		return tutti_all_gatherv(p->send_ptr, p->recv_ptr, p->counts, to, dtype, comm,
					 call);
	case PART_REDUCE_SCATTERV:
		return tutti_reduce_scatterv(p->send_ptr, p->recv_ptr, p->counts, from, dtype,
					     p->op, comm, call);
	case PART_GATHERV:
		return tutti_gatherv(p->send_ptr, p->recv_ptr, p->counts, to, dtype, p->root, comm,
				     call);
	case PART_SCATTERV:
		return tutti_scatterv(p->send_ptr, p->recv_ptr, p->counts, from, dtype, p->root,
				      comm, call);
	default:
		return tutti_all_to_allv(p->send_ptr, s->count, from, p->recv_ptr, r->count, to,
					 dtype, comm, call);
	}
}

tutti_status part_issue(struct part *p, const tutti_call *send_call, const tutti_call *recv_call)
{
	const tutti_call *call = recv_call;
	tutti_dtype dtype = p->data.dtype;
	tutti_comm *comm = p->place.comm;
	const char *send = p->send_ptr;
	char *recv = p->recv_ptr;

	switch ((int)p->name) {
	case PART_ALL_REDUCE:
		return tutti_all_reduce(send, recv, p->count, dtype, p->op, comm, call);
	case PART_REDUCE:
		return tutti_reduce(send, recv, p->count, dtype, p->op, p->root, comm, call);
	case PART_BROADCAST:
		return tutti_broadcast(send, recv, p->count, dtype, p->root, comm, call);
	case PART_ALL_GATHER:
		return tutti_all_gather(send, recv, p->count, dtype, comm, call);
	case PART_REDUCE_SCATTER:
		return tutti_reduce_scatter(send, recv, p->count, dtype, p->op, comm, call);
	case PART_GATHER:
		return tutti_gather(send, recv, p->count, dtype, p->root, comm, call);
	case PART_SCATTER:
		return tutti_scatter(send, recv, p->count, dtype, p->root, comm, call);
	case PART_ALL_TO_ALL:
		return tutti_all_to_all(send, recv, p->count, dtype, comm, call);
	case PART_BARRIER:
		return tutti_barrier(comm, call);
	case PART_LETTER:
		return issue_letter(p, send_call, recv_call);
	default:
		return issue_varying(p, call);
	}
}

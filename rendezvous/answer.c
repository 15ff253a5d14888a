/* Frames from the server. It has proved the job's key, and still no length of its is believed. */
#include "rendezvous/answer.h"

#include "core/status.h"

#define GRACE_NS (2000 * UINT64_C(1000000))

uint64_t answer_grace(uint64_t deadline_ns)
{
	return deadline_ns > DEADLINE_NONE - GRACE_NS ? deadline_ns : deadline_ns + GRACE_NS;
}

tutti_status answer_lost(const struct wire *w, tutti_status status)
{
	const char *who = w->is_served    ? "the process that called tutti_rendezvous_open"
			  : w->is_growing ? "the rank that called tutti_comm_grow"
					  : "rank 0";

	if (status == TUTTI_ERR_PEER)
		return fail(status,
			    "%s, which serves the joining ranks at %s, went away (has it "
			    "died?)",
			    who, w->where);
	if (status == TUTTI_ERR_TIMEOUT)
		return fail(status,
			    "%s, which serves the joining ranks at %s, did not answer before "
			    "the deadline",
			    who, w->where);
	return status;
}

/* Why the meeting has failed, for all ranks. */
static tutti_status take_failure(const struct wire *w, struct frame f, uint64_t deadline_ns)
{
	char text[ERROR_BYTES] = "";

	if (f.bytes >= sizeof text || f.value > INT32_MAX || !status_is_error((int64_t)f.value))
		return answer_lost(w, TUTTI_ERR_PEER);
	tutti_status status = wire_recv(w, text, f.bytes, deadline_ns);
	if (status != TUTTI_OK)
		return answer_lost(w, status);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 32)
			*c = '?';
	return fail((tutti_status)f.value, "%s", text);
}

tutti_status answer_await(struct wire *w, enum frame_kind kind, void *body, size_t bytes,
			  uint64_t deadline_ns)
{
	uint8_t head[FRAME_BYTES];
	struct frame f;
	tutti_status status;

	deadline_ns = answer_grace(deadline_ns);
	status = wire_recv(w, head, sizeof head, deadline_ns);
	if (status != TUTTI_OK)
		return answer_lost(w, status);
	w->has_spoken = true;
	f = frame_get(head);
	if (f.kind == FRAME_FAILURE)
		return take_failure(w, f, deadline_ns);
	if (f.kind != (uint32_t)kind || f.bytes != bytes)
		return fail(TUTTI_ERR_INTERNAL,
			    "the meeting at %s answered rank %d with frame %u of "
			    "%u bytes instead of %d of %zu",
			    w->where, w->rank, f.kind, f.bytes, (int)kind, bytes);
	status = wire_recv(w, body, bytes, deadline_ns);
	return status == TUTTI_OK ? TUTTI_OK : answer_lost(w, status);
}

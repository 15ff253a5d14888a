/* Waiting around core/tls.h, which never does; core/net.h for what goes in clear. Then the frames
 * that the server sends: it has proved the job's key, and still no length of its is believed. */
#include "core/join/wire.h"

#include "core/net.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GRACE_NS (2000 * UINT64_C(1000000))

void wire_context(uint8_t context[AUTH_CONTEXT_BYTES], bool has_tls)
{
	memset(context, 0, AUTH_CONTEXT_BYTES);
	strcpy((char *)context, "tutti rendezvous");
	context[AUTH_CONTEXT_BYTES - 1] = has_tls;
}

/* After a call that moved nothing. OK: try again. PEER: wire_lost explains it. */
static tutti_status wire_again(const struct wire *w, short events, uint64_t deadline_ns)
{
	if (errno == EAGAIN)
		return net_wait(w->fd, events, deadline_ns);
	if (errno == EBADMSG)
		return fail(TUTTI_ERR_AUTH,
			    "what rank %d and the server of its meeting at %s say to each other is "
			    "changed on its way (TLS: %s; is a proxy between them?)",
			    w->rank, w->where, tls_error_text(w->tls));
	if (net_is_gone(errno))
		return TUTTI_ERR_PEER;
	return fail_errno("cannot use a socket");
}

tutti_status wire_secure(struct wire *w, const struct auth *auth, uint64_t deadline_ns)
{
	uint8_t key[TUTTI_KEY_BYTES];
	tutti_status status = tls_load();

	auth_tls_key(auth, key);
	if (status == TUTTI_OK)
		status = tls_new(&w->tls, w->fd, key, true, 1);
	sodium_memzero(key, sizeof key);
	while (status == TUTTI_OK && tls_handshake(w->tls) != 0)
		status = wire_again(w, tls_wants_write(w->tls) ? POLLIN | POLLOUT : POLLIN,
				    deadline_ns);
	return status;
}

static tutti_status wire_send_all(const struct wire *w, const void *data, size_t bytes,
				  uint64_t deadline_ns)
{
	struct iovec rest = {(void *)(uintptr_t)data, bytes};

	while (rest.iov_len > 0) {
		ssize_t n = tls_send(w->tls, &rest, 1);
		if (n < 0) {
			TRY(wire_again(w, POLLOUT, deadline_ns));
			continue;
		}
		rest.iov_base = (char *)rest.iov_base + n;
		rest.iov_len -= (size_t)n;
	}
	return TUTTI_OK;
}

/* Sealed bytes must go before any others. */
tutti_status wire_send(struct wire *w, const void *data, size_t bytes, uint64_t deadline_ns)
{
	tutti_status status;

	if (!w->tls)
		return net_send_all(w->fd, data, bytes, deadline_ns);
	if (w->is_stuck)
		return TUTTI_ERR_PEER;
	status = wire_send_all(w, data, bytes, deadline_ns);
	w->is_stuck = status != TUTTI_OK;
	return status;
}

static tutti_status wire_receive(const struct wire *w, void *data, size_t bytes,
				 uint64_t deadline_ns)
{
	struct iovec rest = {data, bytes};

	if (!w->tls)
		return net_recv_all(w->fd, data, bytes, deadline_ns);
	while (rest.iov_len > 0) {
		ssize_t n = tls_recv(w->tls, &rest, 1);
		if (n == 0)
			return TUTTI_ERR_PEER;
		if (n < 0) {
			TRY(wire_again(w, POLLIN, deadline_ns));
			continue;
		}
		rest.iov_base = (char *)rest.iov_base + n;
		rest.iov_len -= (size_t)n;
	}
	return TUTTI_OK;
}

/* The last bytes may get lost: the server knows that the rank has left. */
void wire_close(struct wire *w)
{
	if (w->tls)
		tls_end(w->tls);
	tls_free(w->tls);
	w->tls = NULL;
	w->is_stuck = false;
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

uint64_t wire_grace(uint64_t deadline_ns)
{
	return deadline_ns > DEADLINE_NONE - GRACE_NS ? deadline_ns : deadline_ns + GRACE_NS;
}

tutti_status wire_lost(const struct wire *w, tutti_status status)
{
	const char *who = w->is_served    ? "the process that called tutti_rendezvous_open"
			  : w->is_growing ? "the rank that called tutti_comm_grow"
					  : "rank 0";

	if (status == TUTTI_ERR_PEER)
		return fail(status,
			    "the connection to %s, which serves the joining ranks at %s, was lost "
			    "(has it died?)",
			    who, w->where);
	if (status == TUTTI_ERR_TIMEOUT)
		return fail(status,
			    "%s, which serves the joining ranks at %s, did not answer before "
			    "the deadline",
			    who, w->where);
	if (status == TUTTI_ERR_SYSTEM) {
		char why[ERROR_BYTES];
		snprintf(why, sizeof why, "%s", last_error());
		return fail(status, "rank %d cannot talk to %s at %s: %.300s", w->rank, who,
			    w->where, why);
	}
	return status;
}

/* Why the meeting has failed, for all ranks. */
static tutti_status wire_take_failure(const struct wire *w, struct frame f, uint64_t deadline_ns)
{
	char text[ERROR_BYTES] = "";

	if (f.bytes >= sizeof text || f.value > INT32_MAX || !status_is_error((int64_t)f.value))
		return wire_lost(w, TUTTI_ERR_PEER);
	tutti_status status = wire_receive(w, text, f.bytes, deadline_ns);
	if (status != TUTTI_OK)
		return wire_lost(w, status);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 32)
			*c = '?';
	return fail((tutti_status)f.value, "%s", text);
}

tutti_status wire_await(struct wire *w, enum frame_kind kind, void *body, size_t bytes,
			uint64_t deadline_ns)
{
	uint8_t head[FRAME_BYTES];
	struct frame f;
	tutti_status status;

	deadline_ns = wire_grace(deadline_ns);
	status = wire_receive(w, head, sizeof head, deadline_ns);
	if (status != TUTTI_OK)
		return wire_lost(w, status);
	w->has_spoken = true;
	f = frame_get(head);
	if (f.kind == FRAME_FAILURE)
		return wire_take_failure(w, f, deadline_ns);
	if (f.kind != (uint32_t)kind || f.bytes != bytes)
		return fail(TUTTI_ERR_INTERNAL,
			    "the meeting at %s answered rank %d with frame %u of "
			    "%u bytes instead of %d of %zu (has it the same version of Tutti?)",
			    w->where, w->rank, f.kind, f.bytes, (int)kind, bytes);
	status = wire_receive(w, body, bytes, deadline_ns);
	return status == TUTTI_OK ? TUTTI_OK : wire_lost(w, status);
}

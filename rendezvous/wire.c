/* Waiting around core/tls.h, which never does; core/net.h for what goes in clear. */
#include "rendezvous/wire.h"

#include "core/net.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

void wire_context(uint8_t context[AUTH_CONTEXT_BYTES], bool has_tls)
{
	memset(context, 0, AUTH_CONTEXT_BYTES);
	strcpy((char *)context, "tutti rendezvous");
	context[AUTH_CONTEXT_BYTES - 1] = has_tls;
}

/* After a call that moved nothing. OK: try again. */
static tutti_status again(const struct wire *w, short events, uint64_t deadline_ns)
{
	if (errno == EAGAIN)
		return net_wait(w->fd, events, deadline_ns);
	if (errno == EBADMSG)
		return fail(TUTTI_ERR_AUTH,
			    "what rank %d and the server of its meeting at %s say to each other "
			    "is changed on its way (TLS: %s)",
			    w->rank, w->where, tls_error_text(w->tls));
	if (net_is_gone(errno))
		return fail(TUTTI_ERR_PEER, "the other end of a connection went away (%s)",
			    strerror(errno));
	return fail_errno("a socket failed");
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
		status = again(w, tls_wants_write(w->tls) ? POLLIN | POLLOUT : POLLIN, deadline_ns);
	return status;
}

static tutti_status send_all(const struct wire *w, const void *data, size_t bytes,
			     uint64_t deadline_ns)
{
	struct iovec rest = {(void *)(uintptr_t)data, bytes};

	while (rest.iov_len > 0) {
		ssize_t n = tls_send(w->tls, &rest, 1);
		if (n < 0) {
			TRY(again(w, POLLOUT, deadline_ns));
			continue;
		}
		rest.iov_base = (char *)rest.iov_base + n;
		rest.iov_len -= (size_t)n;
	}
	return TUTTI_OK;
}

/* What is sealed must go before anything else can. */
tutti_status wire_send(struct wire *w, const void *data, size_t bytes, uint64_t deadline_ns)
{
	tutti_status status;

	if (!w->tls)
		return net_send_all(w->fd, data, bytes, deadline_ns);
	if (w->is_stuck)
		return fail(TUTTI_ERR_PEER, "the other end of a connection takes no more");
	status = send_all(w, data, bytes, deadline_ns);
	w->is_stuck = status != TUTTI_OK;
	return status;
}

tutti_status wire_recv(const struct wire *w, void *data, size_t bytes, uint64_t deadline_ns)
{
	struct iovec rest = {data, bytes};

	if (!w->tls)
		return net_recv_all(w->fd, data, bytes, deadline_ns);
	while (rest.iov_len > 0) {
		ssize_t n = tls_recv(w->tls, &rest, 1);
		if (n == 0)
			return fail(TUTTI_ERR_PEER,
				    "the other end closed the connection with %zu of %zu bytes "
				    "missing",
				    rest.iov_len, bytes);
		if (n < 0) {
			TRY(again(w, POLLIN, deadline_ns));
			continue;
		}
		rest.iov_base = (char *)rest.iov_base + n;
		rest.iov_len -= (size_t)n;
	}
	return TUTTI_OK;
}

/* What is said last is said as well as it can be: the server knows that the rank has left. */
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

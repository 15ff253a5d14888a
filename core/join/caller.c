/* A connection's messages, in the order of its stages. One that has proved nothing and says
 * anything wrong is closed without an answer; a rank that breaks the protocol counts as gone. */
#include "core/join/caller.h"

#include "core/forks.h"
#include "core/log.h"
#include "core/net.h"
#include "core/tries.h"
#include "core/join/wire.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Reads in a row from one connection, so that none starves the others. */
#define READS_MAX 64

static void caller_await(struct caller *c, enum caller_stage stage, uint8_t *into, size_t bytes)
{
	c->stage = stage;
	c->into = into;
	c->need = bytes;
	c->have = 0;
}

struct caller *caller_new(int fd)
{
	struct caller *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->fd = fd;
	forks_own(fd);
	c->rank = -1;
	c->bye_deadline_ns = DEADLINE_NONE;
	caller_await(c, CALLER_HELLO, c->in, AUTH_HELLO_BYTES);
	return c;
}

static void caller_unlist(const struct caller *c, struct host *host)
{
	struct caller **link = &host->ranks;

	while (*link != c)
		link = &(*link)->next_rank;
	*link = c->next_rank;
}

void caller_free(struct caller *c, struct host *host)
{
	if (c->rank >= 0) {
		meeting_leave(&host->meeting, c->rank, c->said_bye);
		caller_unlist(c, host);
	}
	tls_free(c->tls);
	forks_disown(c->fd);
	close(c->fd);
	sodium_memzero(&c->auth, sizeof c->auth);
	free(c);
}

void caller_send(struct caller *c, struct frame head, const uint8_t *body)
{
	assert(!caller_is_sending(c));
	frame_put(c->out, head);
	c->out_bytes = FRAME_BYTES;
	c->body = body;
	c->body_bytes = head.bytes;
	c->sent = 0;
	caller_write(c);
}

void caller_tell(struct caller *c, const struct meeting *m)
{
	struct frame f = {FRAME_FAILURE, (uint32_t)strlen(m->error), (uint64_t)m->status};

	caller_await(c, CALLER_TOLD, c->in, sizeof c->in);
	caller_send(c, f, (const uint8_t *)m->error);
}

/* The connection is broken, or this process is denied its use, which is not the caller's fault. */
static void caller_end(struct caller *c, int error)
{
	c->is_closed = true;
	if (tried_of(error) == TRIED_DENIED && error != EBADMSG)
		c->denied = error;
}

static ssize_t caller_push(struct caller *c)
{
	size_t of_body = c->sent > c->out_bytes ? c->sent - c->out_bytes : 0;
	struct iovec iov[2] = {{c->out + c->sent - of_body, c->out_bytes - (c->sent - of_body)}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = c->body_bytes ? 2 : 1};

	if (c->body_bytes) /* else there is no body to point into */
		iov[1] = (struct iovec){(void *)(uintptr_t)(c->body + of_body),
					c->body_bytes - of_body};
	return c->tls ? tls_send(c->tls, iov, (int)message.msg_iovlen)
		      : sendmsg(c->fd, &message, MSG_NOSIGNAL);
}

void caller_write(struct caller *c)
{
	while (caller_is_sending(c) && !c->is_closed) {
		ssize_t n = caller_push(c);

		if (n >= 0)
			c->sent += (size_t)n;
		else if (errno == EAGAIN)
			return;
		else if (errno != EINTR)
			caller_end(c, errno);
	}
}

static void caller_take_hello(struct caller *c, struct host *host)
{
	if (auth_take_hello(&c->auth, host->key, c->in, c->out) != TUTTI_OK) {
		log_seldom("dropped a connection that does not speak Tutti's protocol");
		c->is_closed = true;
		return;
	}
	c->out_bytes = AUTH_ANSWER_BYTES;
	caller_await(c, CALLER_PROOF, c->in, AUTH_PROOF_BYTES);
	caller_write(c);
}

/* The context that the caller has proved says how it goes on: in clear or by TLS. */
static void caller_greeted(struct caller *c, struct host *host)
{
	uint8_t clear[AUTH_CONTEXT_BYTES], secure[AUTH_CONTEXT_BYTES], key[TUTTI_KEY_BYTES];

	wire_context(clear, false);
	wire_context(secure, true);
	c->has_tls = memcmp(c->auth.context, secure, sizeof secure) == 0;
	caller_await(c, CALLER_NAME, c->in, FRAME_BYTES + FRAME_HELLO_BYTES);
	if (!c->has_tls && memcmp(c->auth.context, clear, sizeof clear) != 0)
		c->is_closed = true; /* a proof for another place */
	if (!c->has_tls || c->is_own)
		return;
	auth_tls_key(&c->auth, key);
	if (tls_load() != TUTTI_OK || tls_new(&c->tls, c->fd, key, false, 1) != TUTTI_OK) {
		/* The caller says which rank it is by TLS only. */
		meeting_fail(&host->meeting, TUTTI_ERR_UNSUPPORTED,
			     "a rank that has TUTTI_TLS 1 cannot join here: %.400s", last_error());
		c->is_closed = true;
	}
	sodium_memzero(key, sizeof key);
	caller_await(c, CALLER_HANDSHAKE, NULL, 0);
}

/* The caller spoke the protocol. A rank with another secret hangs up when it sees our proof; a
 * caller that goes on proves something else. */
static void caller_wrong_answers(struct caller *c, struct host *host)
{
	char from[NET_ADDRESS_BYTES];

	c->is_closed = true;
	net_peer_address(c->fd, from);
	meeting_count_unproved(&host->meeting, from);
	log_seldom("dropped a connection that did not prove the job's secret, from %s",
		   from[0] ? from : "an unknown address");
}

static void caller_take_proof(struct caller *c, struct host *host)
{
	if (auth_check_proof(&c->auth, c->in) != TUTTI_OK || caller_is_sending(c)) {
		caller_wrong_answers(c, host);
		return;
	}
	caller_greeted(c, host);
}

/* The handshake that follows the proof. False: it waits for the other end, or is over. */
static bool caller_shake(struct caller *c)
{
	if (tls_handshake(c->tls) == 0) {
		caller_await(c, CALLER_NAME, c->in, FRAME_BYTES + FRAME_HELLO_BYTES);
		return true;
	}
	if (errno != EAGAIN) {
		log_seldom("dropped a rank whose TLS failed: %s", tls_error_text(c->tls));
		c->is_closed = true;
	}
	return false;
}

/* A process that has lost its connection connects again, and its new connection may be read before
 * the end of the former one. So the former one is read first: if it has ended, the meeting fails
 * for that, and not because two processes have one rank. */
static void caller_look_for_end(struct host *host, int rank)
{
	struct caller *former = host->ranks;

	while (former && former->rank != rank)
		former = former->next_rank;
	if (!former)
		return;
	caller_read(former, host);
	if (former->is_closed)
		meeting_leave(&host->meeting, rank, former->said_bye);
}

static void caller_join(struct caller *c, struct host *host, int rank)
{
	c->rank = rank;
	c->next_rank = host->ranks;
	host->ranks = c;
}

static void caller_take_name(struct caller *c, struct host *host)
{
	struct frame f = frame_get(c->in);
	const uint8_t *body = c->in + FRAME_BYTES;
	uint32_t version = get_u32(body), rank = get_u32(body + 4), size = get_u32(body + 8);
	uint32_t local_ranks = (uint32_t)(f.value >> 32);

	caller_await(c, CALLER_HEAD, c->in, FRAME_BYTES);
	if (f.kind != FRAME_HELLO || f.bytes != FRAME_HELLO_BYTES || rank > INT32_MAX ||
	    size > INT32_MAX || local_ranks > INT32_MAX)
		c->is_closed = true;
	else if (version != FRAME_VERSION)
		meeting_fail(
			&host->meeting, TUTTI_ERR_MISMATCH,
			"rank %u speaks version %u of the joining protocol, this process %d: all "
			"ranks need the same version of Tutti",
			rank, version, FRAME_VERSION);
	if (c->is_closed || host->meeting.status != TUTTI_OK)
		return;
	caller_look_for_end(host, (int)rank);
	if (meeting_compare_local_ranks(&host->meeting, (int)rank, (int)local_ranks) &&
	    meeting_join(&host->meeting, (int)rank, (int)size,
			 deadline_from_left((uint32_t)f.value))) {
		caller_join(c, host, (int)rank);
		meeting_compare_hosts(&host->meeting, (int)rank, get_u32(body + 12));
		meeting_compare_tls(&host->meeting, (int)rank, c->has_tls);
	}
}

static void caller_take_record(struct caller *c, struct host *host, struct frame f)
{
	uint8_t *into;

	if (!host->is_welcomed || host->meeting.seats[c->rank] != SEAT_TAKEN ||
	    caller_is_sending(c)) {
		c->is_closed = true; /* two records in a round, or one before its time */
		return;
	}
	into = meeting_record(&host->meeting, c->rank, f.bytes, deadline_from_left(f.value));
	if (into)
		caller_await(c, CALLER_BODY, into, f.bytes);
}

static void caller_take_head(struct caller *c, struct host *host)
{
	struct frame f = frame_get(c->in);

	caller_await(c, CALLER_HEAD, c->in, FRAME_BYTES);
	if (f.kind == FRAME_RECORD && !c->said_bye) {
		caller_take_record(c, host, f);
	} else if (f.kind == FRAME_BYE && f.bytes == 0 && !c->said_bye) {
		c->said_bye = true;
		c->bye_deadline_ns = deadline_from_left(f.value);
		meeting_leave(&host->meeting, c->rank, true);
	} else {
		c->is_closed = true;
	}
}

static void caller_take_answer(struct caller *c, struct host *host)
{
	switch (c->stage) {
	case CALLER_HELLO:
		caller_take_hello(c, host);
		break;
	case CALLER_PROOF:
		caller_take_proof(c, host);
		break;
	case CALLER_HANDSHAKE: /* no bytes of its own */
		break;
	case CALLER_NAME:
		caller_take_name(c, host);
		break;
	case CALLER_HEAD:
		caller_take_head(c, host);
		break;
	case CALLER_BODY:
		caller_await(c, CALLER_HEAD, c->in, FRAME_BYTES);
		host->round_closed |= meeting_gave(&host->meeting, c->rank);
		break;
	case CALLER_TOLD:
		c->have = 0;
		break;
	}
}

static ssize_t caller_pull(struct caller *c)
{
	struct iovec rest = {c->into + c->have, c->need - c->have};

	return c->tls ? tls_recv(c->tls, &rest, 1) : recv(c->fd, rest.iov_base, rest.iov_len, 0);
}

void caller_read(struct caller *c, struct host *host)
{
	for (int i = 0; i < READS_MAX && !c->is_closed; i++) {
		/* A failed meeting answers no more records: ranks are told of the failure. */
		if (host->meeting.status != TUTTI_OK && caller_is_rank(c))
			return;
		if (c->stage == CALLER_HANDSHAKE) {
			if (!caller_shake(c))
				return;
			continue;
		}
		if (c->have == c->need) {
			caller_take_answer(c, host);
			continue;
		}
		ssize_t n = caller_pull(c);
		if (n > 0)
			c->have += (size_t)n;
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && errno == EAGAIN)
			return;
		else if (c->stage == CALLER_PROOF && (n == 0 || net_is_gone(errno)))
			caller_wrong_answers(c, host);
		else
			caller_end(c, n == 0 ? ECONNRESET : errno);
		if (!c->is_closed && c->have == c->need)
			caller_take_answer(c, host);
	}
}

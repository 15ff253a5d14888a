/* How callers come in: a bounded number that have proved nothing yet, the oldest of which goes when
 * there is no room. */
#include "core/join/server_loop.h"

#include "core/log.h"
#include "core/net.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPTS_MAX     32 /* before the others are looked at again */
#define TURNED_AWAY_MAX 8  /* then memory is not lacking for a moment */

static struct caller *caller_of(struct admission_entry *entry)
{
	return (struct caller *)((char *)entry - offsetof(struct caller, pending));
}

bool server_make_room(struct server_loop *s)
{
	int capacity = s->capacity ? 2 * s->capacity : 16;
	struct caller **callers;
	struct pollfd *polls;

	if (s->count < s->capacity)
		return true;
	callers = realloc(s->callers, (size_t)capacity * sizeof *callers);
	if (!callers)
		return false;
	s->callers = callers;
	polls = realloc(s->polls, (size_t)(capacity + 3) * sizeof *polls);
	if (!polls)
		return false;
	s->polls = polls;
	s->capacity = capacity;
	return true;
}

struct caller *server_add_caller(struct server_loop *s, int fd)
{
	struct caller *c = server_make_room(s) ? caller_new(fd) : NULL;

	if (!c) {
		close(fd);
		return NULL;
	}
	s->callers[s->count++] = c;
	return c;
}

void server_read_caller(struct server_loop *s, struct caller *c)
{
	caller_read(c, &s->host);
	if (c->is_closed || !caller_is_pending(c))
		admission_remove(&s->pending, &c->pending);
	else if (caller_has_proved(c) && c->pending.link && !c->pending.has_proved)
		admission_proved(&s->pending, &c->pending);
}

static void server_accept_drop(struct server_loop *s, struct caller *c)
{
	int i = 0;

	while (s->callers[i] != c)
		i++;
	memmove(&s->callers[i], &s->callers[i + 1],
		(size_t)(--s->count - i) * sizeof(struct caller *));
	caller_free(c, &s->host);
}

/* The oldest connection without a proof, unless its proof lies here already: then it stays, and
 * only its place is free. False: there is none. */
static bool server_accept_drop_oldest(struct server_loop *s)
{
	struct admission_entry *oldest = admission_oldest(&s->pending, false);
	struct caller *c;

	if (!oldest)
		return false;
	c = caller_of(oldest);
	server_read_caller(s, c);
	if (caller_has_proved(c) && !c->is_closed)
		return true;
	log_seldom("dropped a connection without a proof, to make room for others");
	admission_remove(&s->pending, oldest);
	server_accept_drop(s, c);
	return true;
}

/* Reads the first bytes of a new connection at once, so that it is further on when others come. */
static void server_accept_add_pending(struct server_loop *s, int fd)
{
	struct caller *c;

	while (!admission_has_room(&s->pending))
		server_accept_drop_oldest(s);
	c = server_add_caller(s, fd);
	s->turned_away = c ? 0 : s->turned_away + 1;
	if (c) {
		admission_add(&s->pending, &c->pending);
		server_read_caller(s, c);
	} else if (s->turned_away >= TURNED_AWAY_MAX) {
		meeting_fail(&s->host.meeting, TUTTI_ERR_MEMORY,
			     "there is no memory to serve the meeting of the ranks: %d "
			     "connections in a row could not be taken",
			     s->turned_away);
	}
}

/* False: no connection waits now. */
static bool server_accept_one(struct server_loop *s, int listen_fd, int *fd)
{
	tutti_status status = net_accept(listen_fd, 0, fd);

	/* No descriptor is left: that of a connection without a proof will do. */
	while (status == TUTTI_ERR_SYSTEM && (errno == EMFILE || errno == ENFILE) &&
	       server_accept_drop_oldest(s))
		status = net_accept(listen_fd, 0, fd);
	if (status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT)
		meeting_fail(&s->host.meeting, status, "rank 0's meeting: %.400s", last_error());
	return status == TUTTI_OK;
}

void server_accept(struct server_loop *s)
{
	int fd;

	for (int i = 0; i < ACCEPTS_MAX && server_accept_one(s, s->config.listen_fd, &fd); i++)
		server_accept_add_pending(s, fd);
}

void server_offer_key(struct server_loop *s)
{
	uint8_t offer[OFFER_BYTES];
	int fd;

	memcpy(offer, s->config.key, TUTTI_KEY_BYTES);
	put_u32(offer + TUTTI_KEY_BYTES, (uint32_t)s->config.port);
	for (int i = 0; i < ACCEPTS_MAX && server_accept_one(s, s->config.unix_fd, &fd); i++) {
		tutti_status status = net_unix_check(fd, NULL);
		if (status == TUTTI_OK && send(fd, offer, sizeof offer, MSG_NOSIGNAL) < 0)
			status = net_is_gone(errno)
					 ? fail(TUTTI_ERR_PEER, "the process that asked has left")
					 : fail_errno("cannot send (send)");
		if (status == TUTTI_ERR_SYSTEM)
			meeting_fail(&s->host.meeting, status,
				     "rank 0 cannot offer the job's secret: %.400s", last_error());
		else if (status != TUTTI_OK)
			log_seldom("refused the job's secret: %s", last_error());
		close(fd);
	}
	sodium_memzero(offer, sizeof offer);
}

void server_expire_pending(struct server_loop *s, uint64_t now_ns)
{
	struct admission_entry *late;

	while ((late = admission_late(&s->pending, now_ns))) {
		log_seldom("dropped a connection that said nothing for too long");
		caller_of(late)->is_closed = true;
		admission_remove(&s->pending, late);
	}
}

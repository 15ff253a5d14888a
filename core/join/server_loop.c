/* One poll loop over listeners and callers, in which nothing else blocks, turn by turn. */
#include "core/join/server_loop.h"

#include "core/forks.h"
#include "core/log.h"
#include "core/net.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* How callers come in: a bounded number that have proved nothing yet, the oldest of which goes when
 * there is no room. */

#define ACCEPTS_MAX     32 /* before the others are looked at again */
#define TURNED_AWAY_MAX 8  /* then memory is not lacking for a moment */

static struct caller *server_loop_caller_of(struct admission_entry *entry)
{
	return (struct caller *)((char *)entry - offsetof(struct caller, pending));
}

/* False: no memory for one caller more. */
static bool server_make_room(struct server_loop *s)
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

/* Reads what the caller says. It holds a place until it has proved the job's key, and is pending
 * until it has said which rank it is. */
static void server_read_caller(struct server_loop *s, struct caller *c)
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
	c = server_loop_caller_of(oldest);
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

/* Takes connections, as many as a turn may; a failure to accept fails the meeting. */
static void server_accept(struct server_loop *s)
{
	int fd;

	for (int i = 0; i < ACCEPTS_MAX && server_accept_one(s, s->config.listen_fd, &fd); i++)
		server_accept_add_pending(s, fd);
}

/* Processes of this machine and this user get the key; others are closed. */
static void server_offer_key(struct server_loop *s)
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

/* Drops connections that have been silent for too long. */
static void server_expire_pending(struct server_loop *s, uint64_t now_ns)
{
	struct admission_entry *late;

	while ((late = admission_late(&s->pending, now_ns))) {
		log_seldom("dropped a connection that said nothing for too long");
		server_loop_caller_of(late)->is_closed = true;
		admission_remove(&s->pending, late);
	}
}

/* How long a caller may take to prove the secret, and again to say its name. */
#define HANDSHAKE_MS 10000
#define PENDING_MAX  256   /* connections that have proved nothing: the oldest goes first */
#define LINGER_MS    2000  /* after a failure, or rank 0 has been lost                         */
#define IDLE_MIN_MS  60000 /* a meeting without a round ends after this, or its joining time   */
#define POLL_MAX_MS  60000

static void server_loop_close_fd(int *fd)
{
	if (*fd >= 0) {
		forks_disown(*fd);
		close(*fd);
	}
	*fd = -1;
}

void server_loop_close_listeners(struct server_loop *s)
{
	server_loop_close_fd(&s->config.listen_fd);
	server_loop_close_fd(&s->config.unix_fd);
}

void server_loop_free(struct server_loop *s)
{
	server_loop_close_listeners(s);
	server_loop_close_fd(&s->config.own_fd);
	for (int i = 0; i < s->count; i++) {
		admission_remove(&s->pending, &s->callers[i]->pending);
		caller_free(s->callers[i], &s->host);
	}
	meeting_finish(&s->host.meeting);
	sodium_memzero(&s->host.key, sizeof s->host.key);
	sodium_memzero(&s->config.key, sizeof s->config.key);
	free(s->callers);
	free(s->polls);
	free(s);
}

/* For a connection without a proof this is no failure: a firewall may block what is sent to it. */
static void server_loop_say_denied(struct server_loop *s, const struct caller *c)
{
	errno = c->denied;
	fail_errno("cannot talk to the ranks that join (sendmsg or recv)");
	if (c->is_own || caller_has_proved(c))
		meeting_fail(&s->host.meeting, TUTTI_ERR_SYSTEM, "rank 0's meeting: %.400s",
			     last_error());
	else
		log_seldom("dropped a connection: %s", last_error());
}

static void server_loop_free_closed(struct server_loop *s)
{
	int kept = 0;

	for (int i = 0; i < s->count; i++) {
		struct caller *c = s->callers[i];
		if (!c->is_closed) {
			s->callers[kept++] = c;
			continue;
		}
		admission_remove(&s->pending, &c->pending);
		if (c->denied)
			server_loop_say_denied(s, c);
		if (c == s->own) {
			s->own = NULL;
			if (!c->said_bye)
				s->stop_ns = deadline_after_ms(LINGER_MS);
		}
		caller_free(c, &s->host);
	}
	s->count = kept;
}

static void server_loop_tell_all(struct server_loop *s)
{
	for (int i = 0; i < s->count; i++) {
		struct caller *c = s->callers[i];
		if (!caller_is_rank(c) || caller_is_sending(c))
			continue;
		s->told++;
		caller_tell(c, &s->host.meeting);
	}
}

static void server_loop_drop_pending(struct server_loop *s)
{
	for (int i = 0; i < s->count; i++)
		s->callers[i]->is_closed |= caller_is_pending(s->callers[i]);
}

static void server_loop_send_all(struct server_loop *s, enum frame_kind kind, const uint8_t *body,
				 size_t bytes)
{
	for (int i = 0; i < s->count; i++)
		if (caller_is_rank(s->callers[i]) && !s->callers[i]->is_closed)
			caller_send(s->callers[i], (struct frame){kind, (uint32_t)bytes, 0}, body);
}

static void server_loop_speak(struct server_loop *s, uint64_t now_ns)
{
	struct meeting *m = &s->host.meeting;

	if (m->status != TUTTI_OK) {
		if (!s->failed_ns) {
			s->failed_ns = now_ns;
			s->told += m->left; /* they need not hear it */
		}
		server_loop_tell_all(s);
	} else if (m->is_complete && !s->host.is_welcomed) {
		/* Before any rank knows that all are here: a rank that comes from now on comes to
		 * the next meeting at this place, not to this one. */
		server_loop_close_listeners(s);
		server_loop_drop_pending(s);
		s->host.is_welcomed = true;
		server_loop_send_all(s, FRAME_WELCOME, s->welcome, sizeof s->welcome);
	} else if (s->host.round_closed) {
		server_loop_send_all(s, FRAME_ANSWER, m->answer, m->answer_bytes);
	}
	s->host.round_closed = false;
}

/* A rank that has said BYE has got all it waited for. */
static bool server_loop_is_deserted(const struct server_loop *s)
{
	for (int i = 0; i < s->count; i++)
		if (!caller_is_pending(s->callers[i]) && !s->callers[i]->said_bye)
			return false;
	return true;
}

/* Rank 0 is in this process, and waits for nothing but its server: it must hear why the meeting
 * failed, also when it is slow to join. */
static bool server_loop_own_is_to_hear(const struct server_loop *s)
{
	return s->own && s->own->stage != CALLER_TOLD && !s->own->said_bye;
}

/* How long a failed meeting waits for late ranks, and until it has been read. */
static uint64_t server_loop_linger_until(const struct server_loop *s)
{
	if (!s->failed_ns || server_loop_own_is_to_hear(s))
		return DEADLINE_NONE;
	return s->failed_ns + LINGER_MS * UINT64_C(1000000);
}

static bool server_loop_is_over(const struct server_loop *s, uint64_t now_ns)
{
	const struct meeting *m = &s->host.meeting;
	bool nobody = server_loop_is_deserted(s);

	if (now_ns >= s->stop_ns)
		return true;
	if (m->status != TUTTI_OK) {
		bool all_know = m->is_complete || m->status == TUTTI_ERR_TIMEOUT || s->is_stopped ||
				(s->told >= m->size && !m->sizes_differ);
		return (nobody && all_know && s->failed_ns && !server_loop_own_is_to_hear(s)) ||
		       now_ns >= server_loop_linger_until(s);
	}
	return m->is_complete && (nobody || now_ns >= s->idle_ns);
}

static bool server_loop_waits_for_ranks(const struct meeting *m)
{
	return m->status == TUTTI_OK && m->size > 0 && (!m->is_complete || m->gather);
}

static void server_loop_say_missing(struct server_loop *s)
{
	const struct meeting *m = &s->host.meeting;
	char missing[180];

	if (!server_loop_waits_for_ranks(m)) {
		s->wait = (struct long_wait){0};
		return;
	}
	if (!long_wait_is_due(&s->wait, s->now_ns))
		return;
	meeting_list(m, m->is_complete ? SEAT_GAVE : SEAT_TAKEN, missing, sizeof missing);
	long_wait_say("%s of %d at %s", missing, m->size, s->config.where);
}

static uint64_t server_loop_wake_at(const struct server_loop *s)
{
	const struct meeting *m = &s->host.meeting;
	uint64_t at = s->stop_ns;

	if (m->status == TUTTI_OK && m->deadline_ns < at)
		at = m->deadline_ns;
	if (m->is_complete && s->idle_ns < at)
		at = s->idle_ns;
	if (server_loop_waits_for_ranks(m) && s->wait.due_ns && s->wait.due_ns < at)
		at = s->wait.due_ns;
	if (server_loop_linger_until(s) < at)
		at = server_loop_linger_until(s);
	return admission_due_ns(&s->pending) < at ? admission_due_ns(&s->pending) : at;
}

static short server_loop_events_of(const struct server_loop *s, const struct caller *c)
{
	bool is_deaf = s->host.meeting.status != TUTTI_OK && caller_is_rank(c);
	bool wants_write = caller_is_sending(c) || (c->tls && tls_wants_write(c->tls));
	return (short)((is_deaf ? 0 : POLLIN) | (wants_write ? POLLOUT : 0));
}

/* TLS has opened more than was asked for: poll knows nothing of that. */
static bool server_loop_has_more(const struct server_loop *s, const struct caller *c)
{
	return c->tls && tls_may_have_more(c->tls) && (server_loop_events_of(s, c) & POLLIN);
}

/* Ranks that have come are told; no other one can come. */
static void server_loop_stop(struct server_loop *s)
{
	s->is_stopped = true;
	s->stop_fd = -1;
	server_loop_close_listeners(s);
	server_loop_drop_pending(s);
	meeting_fail(&s->host.meeting, TUTTI_ERR_PEER,
		     "the rendezvous was closed while ranks were joining "
		     "(tutti_rendezvous_close)");
}

/* Waits for something to happen, and reads and writes what can be. */
static void server_loop_serve(struct server_loop *s, int most_ms)
{
	int n = s->count, max_ms = most_ms < POLL_MAX_MS ? most_ms : POLL_MAX_MS;
	bool is_waiting = true;
	int ready;

	for (int i = 0; i < n; i++) {
		s->polls[i] = (struct pollfd){.fd = s->callers[i]->fd,
					      .events = server_loop_events_of(s, s->callers[i])};
		is_waiting &= !server_loop_has_more(s, s->callers[i]);
	}
	s->polls[n] = (struct pollfd){.fd = s->config.listen_fd, .events = POLLIN};
	s->polls[n + 1] = (struct pollfd){.fd = s->config.unix_fd, .events = POLLIN};
	s->polls[n + 2] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
	ready = poll(s->polls, (nfds_t)n + 3,
		     is_waiting ? deadline_poll_ms(server_loop_wake_at(s), max_ms) : 0);
	if (ready < 0 && errno != EINTR) {
		fail_errno("rank 0's meeting cannot wait (poll)");
		meeting_fail(&s->host.meeting, TUTTI_ERR_SYSTEM, "%s", last_error());
		s->stop_ns = 0; /* nobody can be told */
	}
	if (ready <= 0 && is_waiting)
		return;
	for (int i = 0; i < n; i++) {
		struct caller *c = s->callers[i];
		if (!s->polls[i].revents && !server_loop_has_more(s, c))
			continue;
		s->idle_ns = clock_now_ns() + s->idle_for_ns;
		if (caller_is_sending(c))
			caller_write(c);
		server_read_caller(s, c);
		if (c == s->own && c->said_bye)
			s->stop_ns = c->bye_deadline_ns;
	}
	if (s->polls[n + 2].revents) {
		server_loop_stop(s);
		return;
	}
	if (s->polls[n + 1].revents)
		server_offer_key(s);
	if (s->polls[n].revents)
		server_accept(s);
}

bool server_loop_turn(struct server_loop *s, int most_ms)
{
	if (server_loop_is_over(s, s->now_ns))
		return false;
	server_loop_serve(s, most_ms);
	s->now_ns = clock_now_ns();
	server_expire_pending(s, s->now_ns);
	server_loop_free_closed(s);
	meeting_tick(&s->host.meeting, s->now_ns);
	server_loop_say_missing(s);
	server_loop_speak(s, s->now_ns);
	return true;
}

static tutti_status server_loop_prepare(struct server_loop *s, const struct server_config *config)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t left_ns = config->deadline_ns > now_ns ? config->deadline_ns - now_ns : 0;
	uint64_t least_ns = IDLE_MIN_MS * UINT64_C(1000000);

	admission_init(&s->pending, PENDING_MAX, HANDSHAKE_MS);
	memcpy(s->host.key, config->key, TUTTI_KEY_BYTES);
	auth_random(s->welcome, sizeof s->welcome);
	s->stop_ns = DEADLINE_NONE;
	s->stop_fd = -1;
	s->idle_for_ns = left_ns > least_ns ? left_ns : least_ns;
	s->now_ns = now_ns;
	s->idle_ns = now_ns + s->idle_for_ns;
	TRY(meeting_init(&s->host.meeting, config->size, config->deadline_ns));
	s->host.meeting.local_ranks = config->local_ranks;
	if (config->unix_fd >= 0)
		s->host.meeting.hint = " (there is no TUTTI_SECRET, so that only processes of this "
				       "machine and user can join)";
	if (!server_make_room(s))
		return fail(TUTTI_ERR_MEMORY, "no memory to serve the meeting of the ranks");
	if (config->own_fd >= 0) {
		s->config.own_fd = -1; /* the caller's from now on */
		s->own = server_add_caller(s, config->own_fd);
		if (!s->own)
			return fail(TUTTI_ERR_MEMORY, "no memory for rank 0 in its own meeting");
		s->own->is_own = true;
	}
	return TUTTI_OK;
}

tutti_status server_loop_new(struct server_loop **loop, const struct server_config *config)
{
	struct server_loop *s = calloc(1, sizeof *s);
	tutti_status status;

	if (!s) {
		server_config_close(config);
		return fail(TUTTI_ERR_MEMORY, "no memory to serve the meeting of the ranks");
	}
	s->config = *config;
	/* A forked child that kept them would take connections that nobody serves. */
	forks_own(config->listen_fd);
	forks_own(config->unix_fd);
	status = server_loop_prepare(s, config);
	if (status != TUTTI_OK) {
		server_loop_free(s);
		return status;
	}
	*loop = s;
	return TUTTI_OK;
}

/* Accepted sockets. A guest is a stranger until it has proved the job's key; strangers are few, are
 * dropped when their time is up, and disturb nobody. A known guest, one per peer and channel, waits
 * for this rank to connect. */
#include "transport/tcp/tcp.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/resource_limits.h"
#include "core/status.h"
#include "core/admission.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_MAX 64 /* at a time */

/* It has gone, or is no stranger any more. */
static void give_place_back(struct tcp_endpoint *ep)
{
	ep->strangers--;
	admission_leave();
	tcp_ticking(ep);
}

static void count_arriving(struct tcp_endpoint *ep, int more)
{
	ep->arriving += more;
	tcp_ticking(ep);
}

static void guest_look(struct tcp_endpoint *ep, struct tcp_guest *guest, const char *drop);

static void guest_free(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	struct tcp_guest **at = &ep->guests;

	while (*at != guest)
		at = &(*at)->next;
	*at = guest->next;
	if (!guest->has_proved)
		give_place_back(ep);
	else if (!guest->is_known)
		count_arriving(ep, -1);
	tcp_watch_close(ep, &guest->watch);
	tcp_rest_free(&guest->rest);
	free(guest);
}

static bool is_connecting(const struct tcp_conn *c)
{
	return c->state == CONN_WAITING || c->state == CONN_DIALING || c->state == CONN_GREETING;
}

static struct tcp_conn *conn_for(struct tcp_endpoint *ep, int peer, int channel)
{
	for (struct tcp_conn *c = ep->conns; c; c = c->next)
		if (c->is_owned && c->base.peer == peer && c->base.channel == channel)
			return c;
	return NULL;
}

static void guest_drop(struct tcp_endpoint *ep, struct tcp_guest *guest, const char *why)
{
	bool was_near = guest->has_greeted && !guest->is_known;
	struct tcp_conn *c = was_near ? conn_for(ep, guest->peer, guest->channel) : NULL;

	log_seldom("tcp: dropped a connection from %s: %s", guest->from, why);
	guest_free(ep, guest);
	if (c)
		tcp_dial_resume(c);
}

bool tcp_guest_is_near(const struct tcp_conn *c)
{
	const struct tcp_guest *guest = tcp_endpoint_of(c)->guests;

	while (guest && (!guest->has_greeted || guest->is_known || guest->peer != c->base.peer ||
			 guest->channel != c->base.channel))
		guest = guest->next;
	return guest != NULL;
}

static struct tcp_guest *oldest_stranger(struct tcp_endpoint *ep, bool has_greeted)
{
	struct tcp_guest *guest = ep->guests;

	while (guest && (guest->has_proved || guest->has_greeted != has_greeted))
		guest = guest->next;
	return guest;
}

/* Makes room: who has been a stranger for longest goes first, unless its proof lies here already.
 * Who has greeted knows the communicator's number, and where nothing heals it takes itself for
 * connected when it has sent its proof: it goes last, while who has not been answered dials again.
 * False: there is none. */
static bool drop_oldest_stranger(struct tcp_endpoint *ep)
{
	struct tcp_guest *guest = oldest_stranger(ep, false);

	if (!guest)
		guest = oldest_stranger(ep, true);
	if (guest)
		guest_look(ep, guest, "too many connections without a proof");
	return guest != NULL;
}

/* No descriptor is left. Who has been answered is not dropped for that: it would be a rank that
 * takes itself for connected, and then this one for dead. It proves itself, or its time is up. */
static bool free_descriptor(struct tcp_endpoint *ep)
{
	struct tcp_guest *guest = oldest_stranger(ep, false);

	if (guest)
		guest_look(ep, guest, "too many connections without a proof");
	return guest != NULL;
}

/* Nobody can be let in: who waits for somebody waits in vain. Strangers may leave soon. */
static void refuse_all(struct tcp_endpoint *ep, const char *why)
{
	char kept[200];

	snprintf(kept, sizeof kept, "%.199s", why);
	for (struct tcp_conn *c = ep->conns; c && ep->strangers == 0; c = c->next)
		if (c->is_owned && is_connecting(c))
			tcp_conn_refuse(c, kept);
}

/* Who calls is heard at once, so that it is further on when others come. */
static void guest_add(struct tcp_endpoint *ep, int fd, const struct sockaddr *sockaddr)
{
	struct tcp_guest *guest = calloc(1, sizeof *guest), **at = &ep->guests;

	ep->turned_away = guest ? 0 : ep->turned_away + 1;
	if (!guest) {
		close(fd);
		if (ep->turned_away >= TCP_TURNED_AWAY)
			refuse_all(ep, "there is no memory to accept connections");
		return;
	}
	while (!admission_enter(ep->strangers, TCP_GUESTS + ep->size))
		drop_oldest_stranger(ep);
	tcp_address_print(sockaddr, guest->from);
	guest->is_local = tcp_address_is_loopback(sockaddr);
	guest->watch = (struct tcp_watch){.kind = WATCH_GUEST, .fd = fd};
	guest->deadline_ns = deadline_after_ms(TCP_GUEST_MS);
	while (*at)
		at = &(*at)->next;
	*at = guest;
	ep->strangers++;
	tcp_ticking(ep);
	tcp_tune(fd);
	if (!guest->is_local)
		tcp_tune_far(ep, fd);
	if (tcp_watch_add(ep, &guest->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TUTTI_OK) {
		guest_drop(ep, guest, "it cannot be watched");
		refuse_all(ep, last_error());
	} else {
		guest_look(ep, guest, NULL);
	}
}

/* Whoever is left waits for the next tick, and those that are here get their turn. */
static void accept_later(struct tcp_endpoint *ep)
{
	ep->accept_again = true;
	tcp_ticking(ep);
}

void tcp_guests_accept(struct tcp_endpoint *ep)
{
	char files[OPEN_FILES_LIMIT_BYTES];

	ep->accept_again = false;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		struct sockaddr_storage from = {0};
		socklen_t bytes = sizeof from;
		int fd = accept4(ep->listener.fd, (struct sockaddr *)&from, &bytes,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			guest_add(ep, fd, (struct sockaddr *)&from);
		} else if (errno == EAGAIN) {
			return;
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			int error = errno;
			if (!net_has_caller(ep->listener.fd))
				return;
			if (free_descriptor(ep))
				continue;
			log_seldom("tcp: rank %d cannot accept connections: %s", ep->rank,
				   strerror(error));
			if (error == EMFILE || error == ENFILE)
				refuse_all(ep, open_files_limit_text(files));
			break;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			log_seldom("tcp: accept: %s", strerror(errno));
			return;
		}
	}
	accept_later(ep);
}

/* Who it claims to be, for this communicator and this rank. */
static bool take_context(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	uint8_t expected[AUTH_CONTEXT_BYTES];
	int32_t numbers[4];

	memcpy(numbers, guest->auth.context + sizeof ep->comm_id, sizeof numbers);
	guest->peer = numbers[0];
	guest->channel = numbers[2];
	guest->heals = tcp_would_heal(ep, guest->is_local);
	guest->epoch = guest->heals ? (uint32_t)numbers[3] >> TCP_EPOCH_SHIFT : 0;
	tcp_context(expected, ep, guest->peer, ep->rank, guest->channel,
		    tcp_terms(ep, guest->heals, guest->epoch));
	return memcmp(expected, guest->auth.context, sizeof expected) == 0 && guest->peer >= 0 &&
	       guest->peer < ep->size && guest->peer != ep->rank && guest->channel >= 0 &&
	       guest->channel < TCP_CHANNELS;
}

/* Who came before for the same peer and channel, and is kept. */
static struct tcp_guest *older_twin(struct tcp_endpoint *ep, const struct tcp_guest *guest)
{
	struct tcp_guest *twin = ep->guests;

	while (twin && (twin == guest || !twin->is_known || twin->peer != guest->peer ||
			twin->channel != guest->channel))
		twin = twin->next;
	return twin;
}

/* Whether a guest may become this conn's socket. (NULL: it will be kept.) One that heals takes
 * another socket's place at any time, but never one that is younger than itself. */
static bool is_open(struct tcp_endpoint *ep, const struct tcp_conn *c,
		    const struct tcp_guest *guest)
{
	const struct tcp_guest *twin = c ? NULL : older_twin(ep, guest);

	if (!c)
		return !twin || !guest->heals || guest->epoch > twin->epoch;
	/* Nor one that is older than what we have proved ourselves to the peer: that proof may
	 * still lie in a socket of it, dead perhaps, and would take the place of this one, which
	 * the peer then ends. */
	if (guest->heals && guest->epoch < c->resume.next_epoch)
		return false;
	return is_connecting(c) || (c->heals && guest->heals && c->state == CONN_UP);
}

/* The connection that it wants to go on with was closed here; or the one that it wants has failed
 * here, and what comes too late must not wait for it. */
static bool is_late(const struct tcp_endpoint *ep, const struct tcp_conn *c,
		    const struct tcp_guest *guest)
{
	const struct tcp_ended *ended = ep->ended;

	if (c)
		return c->base.status != TUTTI_OK || c->doomed != TUTTI_OK;
	while (ended && (ended->peer != guest->peer || ended->channel != guest->channel))
		ended = ended->next;
	return ended && (ended->has_failed || guest->epoch > 0);
}

static const char *take_hello(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	uint8_t answer[AUTH_ANSWER_BYTES];
	const struct tcp_conn *c;

	if (auth_take_hello(&guest->auth, ep->key, guest->bytes, answer) != TUTTI_OK)
		return "it is no rank of a job";
	if (!take_context(ep, guest))
		return "it asked for another communicator or rank";
	c = conn_for(ep, guest->peer, guest->channel);
	if (!is_late(ep, c, guest) && !is_open(ep, c, guest))
		return "this connection is there already";
	if (send(guest->watch.fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
		return "it could not be answered";
	guest->has_greeted = true;
	guest->have = 0;
	return NULL;
}

/* What came on the socket whose place it takes is not sent again: the peer was told by its kernel
 * that it had arrived. */
static bool leave_older_socket(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_guest *guest)
{
	struct tcp_guest *twin = c ? NULL : older_twin(ep, guest);

	if (c)
		return c->state != CONN_UP || (tcp_heal(c, ECONNRESET) && is_connecting(c));
	if (!twin)
		return true;
	guest->rest = twin->rest;
	twin->rest = (struct tcp_rest){0};
	return tcp_rest_take(&guest->rest, &twin->watch);
}

/* Each end says how far it has come in the other's stream, and goes on from there. */
static const char *agree(struct tcp_endpoint *ep, struct tcp_conn *c, struct tcp_guest *guest)
{
	bool is_over = is_late(ep, c, guest);
	uint8_t bytes[TCP_POSITION_BYTES];
	struct iovec position = {bytes, sizeof bytes};

	guest->position = tcp_position_read(guest->bytes);
	if (!is_over && !leave_older_socket(ep, c, guest))
		return "the socket before it cannot be left";
	if (is_over)
		tcp_position_write(bytes, TCP_OVER);
	else
		tcp_position_write(bytes, c ? c->resume.received : guest->rest.end);
	/* If it has broken already, it heals once it is the conn's. Nothing else may follow a part
	 * of this. */
	if (tcp_stream_send(&guest->watch, &position, 1) != (ssize_t)sizeof bytes) {
		shutdown(guest->watch.fd, SHUT_RDWR);
		guest->is_broken = true;
	}
	return is_over ? "its connection has been closed" : NULL;
}

/* It is a rank of the job, and gets the time that it needs for the rest. */
static const char *take_proof(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	const struct tcp_conn *c;

	if (auth_check_proof(&guest->auth, guest->bytes) != TUTTI_OK)
		return "it could not prove the job's secret";
	c = conn_for(ep, guest->peer, guest->channel);
	if (!is_late(ep, c, guest) && !is_open(ep, c, guest))
		return "this connection is there already";
	guest->has_proved = true;
	guest->have = 0;
	guest->deadline_ns = deadline_after_ms(TCP_GUEST_MS);
	give_place_back(ep);
	count_arriving(ep, 1);
	guest->is_secure = !ep->has_tls;
	if (ep->has_tls && !tcp_stream_secure(&guest->watch, &guest->auth, false))
		return "there is no memory for TLS";
	return NULL;
}

static const char *shake(struct tcp_guest *guest)
{
	if (tls_shake(guest->watch.tls) == 0) {
		guest->is_secure = true;
		return NULL;
	}
	if (errno == EAGAIN)
		return NULL;
	return errno == EBADMSG ? tls_trouble(guest->watch.tls) : strerror(errno);
}

/* The end of this socket tells it. */
static const char *turn_away(const struct tcp_guest *guest)
{
	if (guest->watch.tls)
		tls_end(guest->watch.tls);
	return "its connection has failed";
}

/* Nothing is missing of its greeting. */
static const char *arrive(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	struct tcp_conn *c = conn_for(ep, guest->peer, guest->channel);
	const char *problem = NULL;
	struct tcp_guest *twin;

	if (!is_late(ep, c, guest) && !is_open(ep, c, guest))
		return "this connection is there already";
	if (guest->heals)
		problem = agree(ep, c, guest);
	else if (is_late(ep, c, guest))
		problem = turn_away(guest);
	if (problem)
		return problem;
	/* A dialer that gave up and dialed again: only its last attempt counts. */
	twin = older_twin(ep, guest);
	if (twin)
		guest_drop(ep, twin, "the same rank came again");
	guest->is_known = true;
	count_arriving(ep, -1);
	if (c)
		tcp_guest_adopt(c);
	return NULL;
}

/* Reads what is missing of what comes next; never more, for what follows is the conn's. */
static bool guest_read(struct tcp_guest *guest, size_t bytes, const char **problem)
{
	while (guest->have < bytes) {
		struct iovec rest = {guest->bytes + guest->have, bytes - guest->have};
		ssize_t n = tcp_stream_recv(&guest->watch, &rest, 1);
		if (n > 0) {
			guest->have += (size_t)n;
			continue;
		}
		if (n == 0)
			*problem = "it hung up before its greeting was over";
		else if (errno != EAGAIN)
			*problem = strerror(errno);
		return false;
	}
	return true;
}

/* Whether nothing is missing of its greeting. problem: why it cannot stay. */
static bool hears_all(struct tcp_endpoint *ep, struct tcp_guest *guest, const char **problem)
{
	if (!guest->has_greeted && guest_read(guest, AUTH_HELLO_BYTES, problem))
		*problem = take_hello(ep, guest);
	if (!*problem && guest->has_greeted && !guest->has_proved &&
	    guest_read(guest, AUTH_PROOF_BYTES, problem))
		*problem = take_proof(ep, guest);
	if (!*problem && guest->has_proved && !guest->is_secure)
		*problem = shake(guest);
	if (*problem || !guest->is_secure)
		return false;
	return !guest->heals || guest_read(guest, TCP_POSITION_BYTES, problem);
}

/* Afterwards the guest may be gone: dropped, or somebody's socket. drop: why it is dropped if it
 * has not proved itself by now; NULL: it may stay. */
static void guest_look(struct tcp_endpoint *ep, struct tcp_guest *guest, const char *drop)
{
	bool had_proved = guest->has_proved;
	const char *problem = NULL;
	bool was_answered = guest->has_greeted;

	if (hears_all(ep, guest, &problem)) {
		problem = arrive(ep, guest);
		if (!problem)
			return;
	}
	/* Who was answered just now may believe that it is connected soon. */
	if (!problem && (was_answered || !guest->has_greeted) && guest->has_proved == had_proved)
		problem = drop;
	if (problem)
		guest_drop(ep, guest, problem);
}

void tcp_guest_event(struct tcp_endpoint *ep, struct tcp_guest *guest)
{
	if (!guest->is_known)
		guest_look(ep, guest, NULL);
}

static void take_terms(struct tcp_conn *c, struct tcp_guest *guest)
{
	struct tcp_resume *r = &c->resume;

	c->heals = guest->heals;
	if (!r->was_up) {
		r->rest = guest->rest;
		r->received = r->rest.end;
		guest->rest = (struct tcp_rest){0};
	}
	r->epoch = guest->epoch;
	if (r->next_epoch <= r->epoch)
		r->next_epoch = r->epoch + 1;
}

/* A dial of its own that is under way ends with this. */
bool tcp_guest_adopt(struct tcp_conn *c)
{
	struct tcp_endpoint *ep = tcp_endpoint_of(c);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = &c->watch};

	for (struct tcp_guest *guest = ep->guests; guest; guest = guest->next) {
		if (!guest->is_known || guest->peer != c->base.peer ||
		    guest->channel != c->base.channel)
			continue;
		uint64_t position = guest->position;
		bool is_broken = guest->is_broken;
		take_terms(c, guest);
		memcpy(c->where, guest->from, sizeof c->where);
		tcp_watch_close(ep, &c->watch);
		c->watch.fd = guest->watch.fd;
		c->watch.tls = guest->watch.tls;
		guest->watch.fd = -1;
		guest->watch.tls = NULL;
		guest_free(ep, guest);
		/* It is watched already and memory was taken then, so this cannot fail. */
		epoll_ctl(ep->epoll_fd, EPOLL_CTL_MOD, c->watch.fd, &event);
		tcp_conn_up(c);
		if (c->heals)
			tcp_resume_at(c, position);
		if (is_broken) {
			c->write_error = ECONNRESET;
			tcp_conn_busy(c);
		}
		return true;
	}
	return false;
}

static struct tcp_guest *late_stranger(const struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct tcp_guest *guest = ep->guests;

	while (guest && (guest->is_known || now_ns < guest->deadline_ns))
		guest = guest->next;
	return guest;
}

void tcp_guests_tick(struct tcp_endpoint *ep, uint64_t now_ns)
{
	struct tcp_guest *late;

	/* Its proof may lie here already, and we have been busy. */
	while ((late = late_stranger(ep, now_ns)))
		guest_look(ep, late, "its greeting took too long");
	if (ep->accept_again)
		tcp_guests_accept(ep);
}

void tcp_guests_free(struct tcp_endpoint *ep)
{
	while (ep->guests)
		guest_free(ep, ep->guests);
}

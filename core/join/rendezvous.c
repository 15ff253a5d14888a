/* Joining, rounds and leaving, as a rank sees them. Rank 0, or the rank that serves a job that
 * grows, runs the server (server.c) beside it and talks to it over a pair of sockets, as every
 * other rank does over TCP. */
#include "core/join/rendezvous.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/cancel.h"
#include "core/status.h"
#include "core/join/find_server.h"
#include "core/join/frame.h"
#include "core/join/place.h"
#include "core/join/secret.h"
#include "core/join/server.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A rank that gives up says so to the server, and waits no longer than that. */
#define HURRY_MS 100

struct rendezvous {
	struct wire wire; /* fd is -1 if alone                                       */
	int size;
	uint8_t key[TUTTI_KEY_BYTES];
	uint64_t comm_id[2];
	struct server *server; /* its own, or NULL                                   */
};

static tutti_status rendezvous_await_welcome(struct rendezvous *r, uint64_t deadline_ns)
{
	uint8_t body[FRAME_WELCOME_BYTES];

	TRY(wire_await(&r->wire, FRAME_WELCOME, body, sizeof body, deadline_ns));
	r->comm_id[0] = get_u64(body);
	r->comm_id[1] = get_u64(body + 8);
	return TUTTI_OK;
}

/* After place_listen, with its errno and message. */
static tutti_status rendezvous_fail_serving(const struct job *job)
{
	char why[ERROR_BYTES];

	if (errno == EADDRINUSE)
		return fail(TUTTI_ERR_SYSTEM,
			    "rank %d cannot serve the joining ranks at %.200s:%d: another "
			    "process listens there (choose another port)",
			    job->rank, job->host, job->port);
	snprintf(why, sizeof why, "%s", last_error());
	return fail(TUTTI_ERR_SYSTEM, "rank %d cannot serve the joining ranks: %.400s", job->rank,
		    why);
}

static tutti_status rendezvous_listen_above(const struct job *job, int *fd, int *port)
{
	for (int i = 1; i <= PROBED_PORTS && job->port + i <= 65535; i++) {
		if (place_listen(job->is_url ? NULL : job->host, job->port + i, fd, port) ==
		    TUTTI_OK)
			return TUTTI_OK;
		if (errno != EADDRINUSE)
			return rendezvous_fail_serving(job);
	}
	return fail(TUTTI_ERR_SYSTEM,
		    "rank %d cannot serve the joining ranks: the ports %d to %d, each tried once, "
		    "are all in use: %s (%s)",
		    job->rank, job->port + 1, job->port + PROBED_PORTS, strerror(EADDRINUSE),
		    job->is_url ? "give all ranks a new URL in config.rendezvous"
				: "TUTTI_PORT names another");
}

static tutti_status rendezvous_listen_tcp(const struct job *job, const struct env *env,
					  struct server_config *config)
{
	tutti_status status;

	if (!secret_is_given(config->key, job, env)) {
		status = secret_check_here(job);
		if (status != TUTTI_OK)
			return status == TUTTI_IN_PROGRESS ? TUTTI_ERR_SYSTEM : status;
		auth_random(config->key, sizeof config->key);
		TRY(secret_listen(job, &config->unix_fd));
	}
	if (job->port_is_taken)
		return rendezvous_listen_above(job, &config->listen_fd, &config->port);
	status = place_listen(job->is_url ? NULL : job->host, job->port, &config->listen_fd,
			      &config->port);
	if (status != TUTTI_OK && errno == EADDRINUSE && job->is_url)
		return rendezvous_listen_above(job, &config->listen_fd, &config->port);
	return status == TUTTI_OK ? status : rendezvous_fail_serving(job);
}

static tutti_status rendezvous_listen_file(const struct job *job, const struct env *env,
					   struct server_config *config, char url[URL_BYTES])
{
	char secret[SECRET_HEX_BYTES];
	tutti_status status;

	TRY(place_listen(NULL, 0, &config->listen_fd, &config->port));
	place_secret(secret);
	secret_key(config->key, secret, job->secret, 0);
	status = place_url(url, URL_BYTES, secret, config->port, env);
	sodium_memzero(secret, sizeof secret);
	return status == TUTTI_OK ? notice_publish(job->path, url) : status;
}

/* This rank's own connection to the server, made before other ranks can connect: if the server
 * has too few descriptors to begin, they must not wait for it. */
static tutti_status rendezvous_make_own_way(struct rendezvous *r, const struct job *job,
					    struct server_config *config)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return fail_errno("rank %d cannot make a pair of sockets (socketpair)", job->rank);
	r->wire.fd = pair[0];
	config->own_fd = pair[1];
	return TUTTI_OK;
}

static tutti_status rendezvous_start_serving(struct rendezvous *r, const struct job *job,
					     const struct server_config *config)
{
	memcpy(r->key, config->key, sizeof r->key);
	TRY(server_start(&r->server, config));
	r->wire.is_own = true;
	return find_server_own(&r->wire, r->key, job, config->deadline_ns);
}

static tutti_status rendezvous_join_serving(struct rendezvous *r, const struct job *job,
					    const struct env *env, uint64_t deadline_ns)
{
	struct server_config config = {.listen_fd = -1,
				       .unix_fd = -1,
				       .own_fd = -1,
				       .rank = job->rank,
				       .size = job->size,
				       .local_ranks = job->local_ranks,
				       .deadline_ns = deadline_ns};
	bool is_file = job->meeting == JOB_FILE;
	char url[URL_BYTES] = "";
	tutti_status status;

	TRY(rendezvous_make_own_way(r, job, &config));
	status = is_file ? rendezvous_listen_file(job, env, &config, url)
			 : rendezvous_listen_tcp(job, env, &config);
	if (status != TUTTI_OK) {
		server_config_close(&config);
		sodium_memzero(&config.key, sizeof config.key);
		sodium_memzero(url, sizeof url);
		return status;
	}
	if (is_file)
		snprintf(r->wire.where, sizeof r->wire.where, "port %d", config.port);
	else
		snprintf(r->wire.where, sizeof r->wire.where, "%s:%d", job->host, config.port);
	log_info("serves the joining ranks at %s", r->wire.where);
	snprintf(config.where, sizeof config.where, "%s", r->wire.where);
	status = rendezvous_start_serving(r, job, &config);
	if (status == TUTTI_OK)
		status = rendezvous_await_welcome(r, deadline_ns);
	if (is_file)
		notice_remove(job->path, url);
	sodium_memzero(&config.key, sizeof config.key);
	sodium_memzero(url, sizeof url);
	return status;
}

/* Hung up on before it was heard, it comes again: the server may have had to make room. */
static tutti_status rendezvous_await_first_word(struct rendezvous *r, const struct dial *dial,
						const struct job *job, uint64_t deadline_ns)
{
	tutti_status status;

	while ((status = rendezvous_await_welcome(r, deadline_ns)) == TUTTI_ERR_PEER &&
	       !r->wire.has_spoken) {
		log_info("%s hung up on this rank without a word; it comes again", r->wire.where);
		wire_close(&r->wire);
		status = find_server_again(dial, job, deadline_ns, &r->wire);
		if (status != TUTTI_OK)
			return status == TUTTI_ERR_PEER ? wire_lost(&r->wire, status) : status;
	}
	return status;
}

static tutti_status rendezvous_join_dialing(struct rendezvous *r, const struct job *job,
					    const struct env *env, uint64_t deadline_ns)
{
	struct dial dial;
	tutti_status status;

	r->wire.is_served = job->is_served;
	r->wire.is_growing = job->is_growing;
	status = find_server(&dial, job, env, deadline_ns, &r->wire);
	if (status == TUTTI_OK) {
		memcpy(r->key, dial.key, sizeof r->key);
		snprintf(r->wire.where, sizeof r->wire.where, "%s:%d", dial.hosts, dial.port);
		status = rendezvous_await_first_word(r, &dial, job, deadline_ns);
	}
	sodium_memzero(&dial.key, sizeof dial.key);
	sodium_memzero(&dial.other_key, sizeof dial.other_key);
	return status;
}

static void rendezvous_finish(struct rendezvous *r, struct kept_error *why)
{
	wire_close(&r->wire);
	if (r->server)
		server_join(r->server, why);
	sodium_memzero(&r->key, sizeof r->key);
	free(r);
}

tutti_status rendezvous_join(struct rendezvous **rendezvous, const struct job *job,
			     const struct env *env, uint64_t deadline_ns)
{
	struct rendezvous *r = calloc(1, sizeof *r);
	tutti_status status = TUTTI_OK;

	if (!r)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to join", job->rank);
	r->wire.rank = job->rank;
	r->size = job->size;
	r->wire.fd = -1;
	if (job->size == 1) { /* no socket, no thread */
		auth_random(r->key, sizeof r->key);
		auth_random(r->comm_id, sizeof r->comm_id);
	} else if (job->rank == job->server && !job->is_served) {
		status = rendezvous_join_serving(r, job, env, deadline_ns);
	} else {
		status = rendezvous_join_dialing(r, job, env, deadline_ns);
	}
	if (status != TUTTI_OK) {
		struct kept_error why = {.status = TUTTI_OK};
		if (cancel_requested())
			rendezvous_leave(r, deadline_ns);
		else
			rendezvous_finish(r, &why);
		/* This rank's own server failed, and could not send it the reason. */
		if (why.status == TUTTI_ERR_SYSTEM && status == TUTTI_ERR_PEER)
			return fail(why.status, "%s", why.message);
		return status;
	}
	log_debug("all %d ranks have joined", r->size);
	*rendezvous = r;
	return TUTTI_OK;
}

tutti_status rendezvous_all_gather(struct rendezvous *r, const void *mine, size_t bytes, void *all,
				   uint64_t deadline_ns)
{
	uint8_t head[FRAME_BYTES];
	tutti_status status;

	if (bytes > RECORD_MAX || bytes * (size_t)r->size > ANSWER_MAX)
		return fail(TUTTI_ERR_INVALID,
			    "rank %d gives %zu bytes to a round of %d ranks: that is too much",
			    r->wire.rank, bytes, r->size);
	if (r->wire.fd < 0) {
		memcpy(all, mine, bytes);
		return TUTTI_OK;
	}
	frame_put(head,
		  (struct frame){FRAME_RECORD, (uint32_t)bytes, deadline_left_ms(deadline_ns)});
	status = wire_send(&r->wire, head, sizeof head, wire_grace(deadline_ns));
	if (status == TUTTI_OK)
		status = wire_send(&r->wire, mine, bytes, wire_grace(deadline_ns));
	/* Refused bytes are explained by what the server has said before. */
	if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
		return wire_lost(&r->wire, status);
	return wire_await(&r->wire, FRAME_ANSWER, all, bytes * (size_t)r->size, deadline_ns);
}

void rendezvous_identity(const struct rendezvous *r, uint8_t key[TUTTI_KEY_BYTES],
			 uint64_t comm_id[2])
{
	uint8_t text[24] = "identity";

	put_u64(text + 8, r->comm_id[0]);
	put_u64(text + 16, r->comm_id[1]);
	crypto_generichash(key, TUTTI_KEY_BYTES, text, sizeof text, r->key, sizeof r->key);
	comm_id[0] = r->comm_id[0];
	comm_id[1] = r->comm_id[1];
}

void rendezvous_leave(struct rendezvous *r, uint64_t deadline_ns)
{
	uint8_t head[FRAME_BYTES];
	char message[ERROR_BYTES];

	if (!r)
		return;
	snprintf(message, sizeof message, "%s", last_error());
	if (cancel_requested())
		deadline_ns = deadline_after_ms(HURRY_MS);
	frame_put(head, (struct frame){FRAME_BYE, 0, deadline_left_ms(deadline_ns)});
	if (r->wire.fd >= 0 && wire_send(&r->wire, head, sizeof head, deadline_ns) != TUTTI_OK)
		log_debug("left a meeting that was over already");
	rendezvous_finish(r, NULL);
	if (message[0])
		fail(TUTTI_ERR_INTERNAL, "%s", message); /* kept: the caller knows the status */
}

/* The meeting's thread: server_loop.c's turns, until it is over; and the servers that a process
 * opens and closes by itself. */
#include "core/join/server.h"

#include "core/clock.h"
#include "core/join/place.h"
#include "core/join/rendezvous.h"
#include "core/join/secret.h"
#include "core/join/server_loop.h"
#include "core/log.h"
#include "core/status.h"
#include "core/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct server {
	struct server_loop *loop;
	pthread_t thread;
	bool is_open; /* then these: */
	int stop_fd;
	uint8_t key[TUTTI_KEY_BYTES];
	pid_t pid; /* a forked child has the list, but none of the threads */
	struct server *next;
};

/* Open servers: each is freed by the thread that takes it off this list, its own or one that stops
 * it. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct server *open_servers;

static void server_free(struct server *s)
{
	server_loop_free(s->loop);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	sodium_memzero(s->key, sizeof s->key);
	free(s);
}

/* With the lock. False: it is not on the list. */
static bool server_unlist(const struct server *s)
{
	struct server **link = &open_servers;

	while (*link && *link != s)
		link = &(*link)->next;
	if (!*link)
		return false;
	*link = s->next;
	return true;
}

/* The open server has ended by itself, unless it was stopped. */
static void server_end_open(struct server *s)
{
	pthread_mutex_lock(&open_lock);
	bool is_mine = server_unlist(s);
	pthread_mutex_unlock(&open_lock);
	if (!is_mine)
		return;
	pthread_detach(s->thread);
	server_free(s);
}

static void *server_run(void *arg)
{
	struct server *s = arg;

	log_set_rank(s->loop->config.rank);
	while (server_loop_turn(s->loop, SERVER_LOOP_PATIENT))
		continue;
	if (s->is_open)
		server_end_open(s);
	else
		server_loop_close_listeners(s->loop);
	return NULL;
}

/* Under the lock, so that it is on the list before its thread can end it. */
static int server_start_open(struct server *s, const uint8_t key[TUTTI_KEY_BYTES])
{
	int rc;

	memcpy(s->key, key, sizeof s->key);
	s->is_open = true;
	s->pid = getpid();
	s->stop_fd = s->loop->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->stop_fd < 0)
		return errno;
	pthread_mutex_lock(&open_lock);
	rc = thread_start(&s->thread, server_run, s);
	if (rc == 0) {
		s->next = open_servers;
		open_servers = s;
	}
	pthread_mutex_unlock(&open_lock);
	return rc;
}

tutti_status server_start(struct server **server, const struct server_config *config)
{
	struct server_loop *loop;
	struct server *s;
	int rc;

	TRY(server_loop_new(&loop, config));
	s = calloc(1, sizeof *s);
	if (!s) {
		server_loop_free(loop);
		return fail(TUTTI_ERR_MEMORY, "no memory to serve the meeting of the ranks");
	}
	s->loop = loop;
	s->stop_fd = -1;
	rc = server ? thread_start(&s->thread, server_run, s) : server_start_open(s, config->key);
	if (rc != 0) {
		server_free(s);
		errno = rc;
		return fail_errno("cannot start the thread that serves the meeting of the ranks");
	}
	if (server)
		*server = s;
	return TUTTI_OK;
}

bool server_stop(const uint8_t key[TUTTI_KEY_BYTES])
{
	struct server *s;

	pthread_mutex_lock(&open_lock);
	for (s = open_servers; s; s = s->next)
		if (s->pid == getpid() && sodium_memcmp(s->key, key, sizeof s->key) == 0)
			break;
	if (s)
		server_unlist(s);
	pthread_mutex_unlock(&open_lock);
	if (!s)
		return false;
	eventfd_write(s->stop_fd, 1);
	server_join(s, NULL);
	return true;
}

void server_join(struct server *s, struct kept_error *why)
{
	const struct meeting *m = &s->loop->host.meeting;

	pthread_join(s->thread, NULL);
	if (why) {
		why->status = m->status;
		memcpy(why->message, m->error, sizeof why->message);
	}
	server_free(s);
}

/* For tutti_rendezvous_open, in a process that may be no rank. */

tutti_status rendezvous_serve(char *url, size_t url_bytes, const struct env *env)
{
	struct server_config config = {.listen_fd = -1,
				       .unix_fd = -1,
				       .own_fd = -1,
				       .rank = -1,
				       .deadline_ns = deadline_after_ms(env->timeout_ms)};
	char secret[SECRET_HEX_BYTES];
	tutti_status status;

	job_reserve_ports(env);
	place_secret(secret);
	secret_key(config.key, secret, "", 0);
	TRY(place_listen(NULL, 0, &config.listen_fd, &config.port));
	status = place_url(url, url_bytes, secret, config.port, env);
	snprintf(config.where, sizeof config.where, "port %d", config.port);
	if (status == TUTTI_OK)
		status = server_start(NULL, &config);
	else
		server_config_close(&config);
	sodium_memzero(&config.key, sizeof config.key);
	sodium_memzero(secret, sizeof secret);
	return status;
}

tutti_status rendezvous_unserve(const char *url)
{
	struct job job = {0};
	uint8_t key[TUTTI_KEY_BYTES];

	TRY(place_parse(&job, url));
	if (!job.is_served)
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous is not a URL that tutti_rendezvous_open has made");
	secret_key(key, job.secret, "", 0);
	if (!server_stop(key))
		log_info("the rendezvous has ended by itself, or is another process's");
	sodium_memzero(key, sizeof key);
	job_forget(&job);
	return TUTTI_OK;
}

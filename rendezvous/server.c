/* The meeting's thread: server_loop.c's turns, until it is over. */
#include "rendezvous/server.h"

#include "core/status.h"
#include "rendezvous/server_loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct server {
	struct server_loop *loop;
	bool is_detached;
	pthread_t thread;
};

static void server_free(struct server *s)
{
	server_loop_free(s->loop);
	free(s);
}

static void *server_run(void *arg)
{
	struct server *s = arg;

	if (s->is_detached)
		pthread_detach(pthread_self());
	while (server_loop_turn(s->loop, SERVER_LOOP_PATIENT))
		continue;
	if (s->is_detached)
		server_free(s);
	else
		server_loop_close_listeners(s->loop);
	return NULL;
}

/* The thread sees no signal: they are the program's. */
static int start_thread(struct server *s)
{
	pthread_t thread; /* a detached one may free s before pthread_create returns */
	bool is_joined = !s->is_detached;
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, NULL, server_run, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0 && is_joined)
		s->thread = thread;
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
	s->is_detached = !server;
	rc = start_thread(s);
	if (rc != 0) {
		server_free(s);
		errno = rc;
		return fail_errno("cannot start the thread that serves the meeting of the ranks");
	}
	if (server)
		*server = s;
	return TUTTI_OK;
}

void server_join(struct server *s)
{
	pthread_join(s->thread, NULL);
	server_free(s);
}

/* Starts ranks as threads. */
#include "start.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread {
	pthread_t id;
	tutti_comm *comm;
	int (*body)(tutti_comm *comm, const void *arg);
	const void *arg;
	int code;
};

static void *start_run_body(void *arg)
{
	struct thread *t = arg;

	t->code = t->body(t->comm, t->arg);
	return NULL;
}

static int start_run_all(struct thread *threads, int n)
{
	int code = 0, started = 0, error = 0;

	for (; started < n; started++) {
		error = pthread_create(&threads[started].id, NULL, start_run_body,
				       &threads[started]);
		if (error)
			break;
	}
	if (error) {
		fprintf(stderr, "%s: only %d of %d threads could be started: %s.\n",
			program_invocation_short_name, started, n, strerror(error));
		code = 3;
		tutti_comm_abort(threads[started].comm);
	}
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i].id, NULL);
		code = threads[i].code > code ? threads[i].code : code;
	}
	return code;
}

int start_threads(tutti_comm **comms, int n, int (*body)(tutti_comm *comm, const void *arg),
		  const void *arg)
{
	struct thread *threads = n > 1 ? calloc((size_t)n, sizeof *threads) : NULL;
	int code;

	if (n == 1)
		return body(comms[0], arg);
	if (!threads) {
		fprintf(stderr, "%s: no memory for %d threads.\n", program_invocation_short_name,
			n);
		return 3;
	}
	for (int i = 0; i < n; i++)
		threads[i] = (struct thread){.comm = comms[i], .body = body, .arg = arg};
	code = start_run_all(threads, n);
	free(threads);
	return code;
}

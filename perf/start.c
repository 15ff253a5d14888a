/* Starts the ranks: through tuttirun, or as threads. */
#include "start.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies the arguments without --ranks N, as --ranks=N or abbreviated too: it is the only option
 * that begins with --ra. */
static void copy_arguments(char **to, int argc, char **argv)
{
	int n = 0;

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--ra", 4) != 0)
			to[n++] = argv[i];
		else if (!strchr(argv[i], '='))
			i++;
	}
}

/* Installed, tuttirun lies beside this program; in a build folder next door. */
static void exec_tuttirun(char **args, const char *folder)
{
	static const char *const places[] = {"%s/tuttirun", "%s/../launch/tuttirun"};
	char path[PATH_MAX + 32];

	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(path, sizeof path, i == 0 ? "%s/tuttirun" : "%s/../launch/tuttirun",
			 folder);
		execv(path, args);
	}
	execvp("tuttirun", args);
}

int start_processes(int ranks, int argc, char **argv)
{
	char self[PATH_MAX], folder[PATH_MAX], number[16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char **args = calloc((size_t)argc + 8, sizeof *args);
	int used = 0;

	if (n < 0 || !args) {
		fprintf(stderr, "%s: cannot start its ranks: %s.\n", argv[0], strerror(errno));
		free(args);
		return 3;
	}
	self[n] = '\0';
	strcpy(folder, self);
	snprintf(number, sizeof number, "%d", ranks);
	args[used++] = (char *)"tuttirun";
	args[used++] = (char *)"-n";
	args[used++] = number;
	args[used++] = (char *)"--";
	args[used++] = self;
	copy_arguments(args + used, argc, argv);
	exec_tuttirun(args, dirname(folder));
	fprintf(stderr, "%s: tuttirun is neither beside it nor on the PATH: %s.\n", argv[0],
		strerror(errno));
	free(args);
	return 3;
}

struct thread {
	pthread_t id;
	tutti_comm *comm;
	int (*body)(tutti_comm *comm, const void *arg);
	const void *arg;
	int code;
};

static void *run_body(void *arg)
{
	struct thread *t = arg;

	t->code = t->body(t->comm, t->arg);
	return NULL;
}

static int run_all(struct thread *threads, int n)
{
	int code = 0, started = 0, error = 0;

	for (; started < n; started++) {
		error = pthread_create(&threads[started].id, NULL, run_body, &threads[started]);
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

int start_threads(int n, const tutti_config *config, int (*body)(tutti_comm *comm, const void *arg),
		  const void *arg)
{
	struct thread *threads = calloc((size_t)n, sizeof *threads);
	tutti_comm **comms = calloc((size_t)n, sizeof(tutti_comm *));
	int code = 3;

	if (!threads || !comms) {
		fprintf(stderr, "%s: no memory for %d threads.\n", program_invocation_short_name,
			n);
	} else if (tutti_init_all(comms, n, config) != TUTTI_OK) {
		fprintf(stderr, "%s: tutti_init_all of %d ranks failed: %s\n",
			program_invocation_short_name, n, tutti_comm_error(NULL));
	} else {
		for (int i = 0; i < n; i++)
			threads[i] = (struct thread){.comm = comms[i], .body = body, .arg = arg};
		code = run_all(threads, n);
		for (int i = 0; i < n; i++)
			tutti_comm_destroy(comms[i]);
	}
	free(comms);
	free(threads);
	return code;
}

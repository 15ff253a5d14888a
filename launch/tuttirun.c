/* tuttirun: starts the ranks of a job on this machine, passes output and signals through, and ends
 * all, or starts it again, when one fails. It knows nothing of what the ranks say to each other; to
 * the library it is a set of environment variables (set_environment in ranks.c). */
#include "binding.h"
#include "guard.h"
#include "meeting.h"
#include "options.h"
#include "ranks.h"
#include "supervise.h"

#include "parallel/mesh/grid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* So that no pipe of ours becomes a rank's stdout. Output to a missing stdout is lost, and the
 * writer sees an error. */
static void open_missing_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Two pipes a rank, a claim a core, and some: more than the usual 1,024 when there are many. */
static void allow_descriptors(int ranks)
{
	rlim_t needed = 2 * (rlim_t)ranks + (rlim_t)get_nprocs() + 32;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
		return;
	limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, so does pipe(), with a message */
}

/* From here on signals wait in the descriptor. SIGHUP stays ignored if it was (nohup). The others
 * do not: a script's background jobs have SIGINT ignored, and still it shall end the job. */
static int take_signals(sigset_t *old)
{
	static const int heard[] = {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
	sigset_t ours;
	int fd;

	supervise_signals(&ours);
	sigprocmask(SIG_BLOCK, &ours, old);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < (int)(sizeof heard / sizeof *heard); i++)
		signal(heard[i], SIG_DFL);
	fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		fprintf(stderr, "tuttirun: signals cannot be received: %s.\n", strerror(errno));
	return fd;
}

/* Of --help, all that is printed here. */
static int end_of_help(void)
{
	if (fflush(stdout) == 0)
		return 0;
	fprintf(stderr, "tuttirun: stdout cannot be written: %s.\n", strerror(errno));
	return 3;
}

/* The first machine prints it, to stderr, as what the ranks print is theirs. Machines have the same
 * number of ranks, one after the other. */
static int use_mesh(const struct options *o)
{
	char text[AXES_TEXT_BYTES];
	int count = o->ranks * o->nodes, *nodes = calloc((size_t)count, sizeof *nodes);

	if (!nodes) {
		fprintf(stderr, "tuttirun: no memory for a mesh of %d ranks.\n", count);
		return 1;
	}
	for (int r = 0; r < count; r++)
		nodes[r] = r / o->ranks;
	axes_write(text, &o->axes);
	setenv("TUTTI_MESH", text, 1);
	if (o->node_rank == 0)
		grid_print(stderr, &o->axes, nodes);
	free(nodes);
	return 0;
}

int main(int argc, char **argv)
{
	static struct ranks ranks;
	struct options options;
	struct meeting meeting;
	sigset_t signals;
	int code = options_parse(&options, argc, argv);
	int signal_fd;
	struct guard guard;
	struct words words;
	struct start start = {&options, &meeting, &guard, NULL, &words, &signals, getpid()};
	struct bindings *bindings;

	if (code >= 0)
		return code ? code : end_of_help();
	open_missing_streams();
	if (options.trace_dir)
		setenv("TUTTI_TRACE_DIR", options.trace_dir, 1);
	if (options.mesh && use_mesh(&options) != 0)
		return 1;
	allow_descriptors(options.ranks);
	code = meeting_prepare(&meeting, &options);
	if (code != 0)
		return code;
	code = bindings_make(&bindings, &options);
	if (code != 0)
		return code;
	start.bindings = bindings;
	if (options.report_bindings)
		bindings_report(bindings, &options);
	signal_fd = take_signals(&signals);
	if (signal_fd < 0)
		return 1;
	words = words_open();
	guard = guard_start();
	code = ranks_start(&ranks, &start);
	if (code == 0) {
		code = supervise(&ranks, &start, signal_fd);
		ranks_finish(&ranks, &guard);
	}
	guard_end(&guard);
	bindings_free(bindings);
	return code;
}

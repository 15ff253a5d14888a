/* tuttirun: starts the ranks of a job on this machine, passes output and signals through, and ends
 * all, or starts it again, when one fails. It knows nothing of what the ranks say to each other; to
 * the library it is a set of environment variables (environment.c). */
#include "agent.h"
#include "binding.h"
#include "dry_run.h"
#include "explain.h"
#include "guard.h"
#include "meeting.h"
#include "options.h"
#include "ranks.h"
#include "supervise.h"

#include "train/mesh/axes.h"

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
static void tuttirun_open_missing_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Three pipes or files a rank, a claim a core, and some: more than the usual 1,024 when there are
 * many. */
static void tuttirun_allow_descriptors(int ranks)
{
	rlim_t needed = 3 * (rlim_t)ranks + (rlim_t)get_nprocs() + 32;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
		return;
	limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, so does pipe(), with a message */
}

/* From here on signals wait in the descriptor. SIGHUP stays ignored if it was (nohup). The others
 * do not: a script's background jobs have SIGINT ignored, and still it shall end the job. */
static int tuttirun_take_signals(sigset_t *old)
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

/* The first machine prints it, to stderr, as what the ranks print is theirs. Machines have the same
 * number of ranks, one after the other. */
static int tuttirun_use_mesh(const struct options *o)
{
	char text[AXES_TEXT_BYTES];
	int count = options_size(o), *nodes = calloc((size_t)count, sizeof *nodes);

	if (!nodes) {
		fprintf(stderr, "tuttirun: no memory for a mesh of %d ranks.\n", count);
		return 1;
	}
	for (int r = 0; r < count; r++)
		nodes[r] = r / (count / o->nodes);
	axes_write(text, &o->axes);
	setenv("TUTTI_MESH", text, 1);
	if (o->node_rank == 0)
		grid_print(stderr, &o->axes, nodes);
	free(nodes);
	return 0;
}

/* Cores for the ranks of this machine. Returns 0, or the exit code. */
static int tuttirun_bind_ranks(struct start *start, struct bindings **bindings)
{
	int code = bindings_make(bindings, start->options);

	if (code != 0)
		return code;
	start->bindings = *bindings;
	if (start->options->report_bindings)
		bindings_report(*bindings, start->options);
	return 0;
}

/* To supervise, a host is a rank whose program is ssh. Its tuttirun keeps the time; where it does
 * not, this one does. */
static struct options tuttirun_options_of_hosts(const struct options *o, const struct hosts *hosts)
{
	return (struct options){
		.ranks = hosts->n,
		.nodes = 1,
		.timeout_s = o->timeout_s > 0 ? o->timeout_s + HOSTS_SLACK_S : 0,
		.max_restarts = options_restart_hosts(o) ? o->max_restarts : 0,
		.restart = RESTART_JOB,
		.progress = o->progress,
		.program = o->program,
	};
}

static int tuttirun_run(struct start *start)
{
	static struct ranks ranks;
	struct guard guard;
	struct words words;
	sigset_t signals;
	int code, signal_fd = tuttirun_take_signals(&signals);

	if (signal_fd < 0)
		return 1;
	words = words_open();
	guard = guard_start();
	start->signals = &signals;
	start->words = &words;
	start->guard = &guard;
	code = ranks_start(&ranks, start);
	if (code == 0) {
		code = launch_supervise(&ranks, start, signal_fd);
		ranks_finish(&ranks, &guard);
	}
	guard_end(&guard);
	return code;
}

static int tuttirun_run_here(struct start *start)
{
	const struct options *o = start->options;
	struct bindings *bindings = NULL;
	int code = o->log_dir && !o->dry_run ? rank_log_prepare(o->log_dir) : 0;

	if (code == 0 && o->mesh)
		code = tuttirun_use_mesh(o);
	if (code == 0)
		code = tuttirun_bind_ranks(start, &bindings);
	if (code == 0)
		code = o->explain   ? launch_explain(start, NULL)
		       : o->dry_run ? dry_run(start, NULL)
				    : tuttirun_run(start);
	if (bindings)
		bindings_free(bindings);
	return code;
}

static int tuttirun_run_on_hosts(struct start *start, struct hosts *hosts)
{
	struct options lead = tuttirun_options_of_hosts(start->options, hosts);
	int code;

	if (start->options->explain)
		return launch_explain(start, hosts);
	if (start->options->dry_run)
		return dry_run(start, hosts);
	code = file_input_read(&hosts->input);
	if (code != 0)
		return code;
	start->options = &lead;
	start->hosts = hosts;
	return tuttirun_run(start);
}

int main(int argc, char **argv)
{
	struct options options;
	struct meeting meeting;
	struct hosts hosts = {0};
	struct start start = {
		.options = &options,
		.meeting = &meeting,
		.launcher = getpid(),
		.agent = {.input_fd = -1},
	};
	int code = 0;

	if (argc == 2 && strcmp(argv[1], "--agent") == 0)
		code = agent_begin(&argc, &argv, &start.agent);
	if (code != 0)
		return code;
	code = options_parse(&options, argc, argv);
	if (code >= 0)
		return code;
	tuttirun_open_missing_streams();
	if (options.trace_dir)
		setenv("TUTTI_TRACE_DIR", options.trace_dir, 1);
	code = options_start_hosts(&options) ? hosts_find(&hosts, &options) : 0;
	if (code == 0) {
		tuttirun_allow_descriptors(hosts.n ? hosts.n : options.ranks);
		code = meeting_prepare(&meeting, &options);
	}
	if (code == 0)
		code = hosts.n ? tuttirun_run_on_hosts(&start, &hosts) : tuttirun_run_here(&start);
	hosts_free(&hosts);
	return code;
}

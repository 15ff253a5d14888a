/* See job.h. Ranks are processes that this one forks; it has no threads, and calls nothing of the
 * library itself. It listens to the ranks' doorbell, injects the faults that are due, wakes up who
 * was stopped, and ends what hangs. */
#include "tests/faults/job.h"

#include "tests/faults/fabric.h"
#include "tests/faults/job_internal.h"
#include "tests/faults/remains.h"

#include "core/clock.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINES     30 /* of the library, one after the other, on a busy machine: the job's own */
#define DEADLINE_MOST 840000 /* ms; less than ctest gives a test */
#define LOOK_MS       2

/* ---- looking after them ---------------------------------------------------------------------- */

void job_signal(const struct job *job, uint32_t ranks, int signal)
{
	for (int r = 0; r < scenario_seats(job->s); r++)
		if ((ranks >> r & 1) && job->running[r])
			kill(job->running[r], signal);
}

static bool is_stop(enum kind kind)
{
	return is_long_stop(kind) || kind == KIND_NAP;
}

static bool is_kill(enum kind kind)
{
	return kind == KIND_KILL;
}

static const struct fault *fault_of_rank(const struct job *job, int rank,
					 bool (*is)(enum kind kind))
{
	for (int i = 0; i < job->s->fault_count; i++) {
		const struct fault *f = &job->s->faults[i];
		if (is(f->kind) && (f->victims >> rank & 1))
			return f;
	}
	return NULL;
}

static bool have_gone_on(const struct job *job, bool to_their_ends)
{
	bool is_grow = scenario_fault(job->s)->point == POINT_GROW;

	for (int r = 0; r < scenario_seats(job->s); r++) {
		bool goes_on = atomic_load(&job->board->seats[r].generation) > is_grow;
		if (job->running[r] && !job->stopped_ns[r] && (to_their_ends || !goes_on))
			return false;
	}
	return true;
}

static void wake(struct job *job)
{
	for (int r = 0; r < scenario_seats(job->s); r++) {
		const struct fault *f = fault_of_rank(job, r, is_stop);
		if (!job->stopped_ns[r] || !job->running[r] || !f)
			continue;
		bool is_due = f->kind == KIND_NAP
				      ? clock_now_ns() >
						job->stopped_ns[r] + f->lasts_ms * UINT64_C(1000000)
				      : have_gone_on(job, f->wakes_late);
		if (!is_due)
			continue;
		job->stopped_ns[r] = 0;
		kill(job->running[r], SIGCONT);
	}
}

/* Several that were stopped wake up one after the other, as the last one sees it. */
static void note_stop(struct job *job, int rank)
{
	const struct fault *f = fault_of_rank(job, rank, is_stop);

	if (!f)
		return;
	job->stopped_ns[rank] = clock_now_ns();
	job->has_happened = true;
	if (is_long_stop(f->kind))
		job->truth.silent_ns[rank] =
			atomic_load(&job->board->seats[rank].inject_ns[f - job->s->faults]);
}

static int reap(struct job *job)
{
	int left = 0, status;

	for (int r = 0; r < scenario_seats(job->s); r++) {
		if (!job->running[r])
			continue;
		pid_t pid = waitpid(job->running[r], &status, WNOHANG | WUNTRACED);
		if (pid == job->running[r] && WIFSTOPPED(status)) {
			note_stop(job, r);
		} else if (pid == job->running[r]) {
			job->status[r] = status;
			job->running[r] = 0;
			if (job->s->grows && job->s->faults[0].victims == 1u << r &&
			    WIFSIGNALED(status))
				job_start_joiner(job, r);
		}
		left += job->running[r] != 0;
	}
	return left;
}

static void look_after(struct job *job)
{
	int most_ms = DEADLINES * job->s->timeout_ms < DEADLINE_MOST
			      ? DEADLINES * job->s->timeout_ms
			      : DEADLINE_MOST;
	uint64_t deadline = deadline_after_ms(most_ms);
	struct pollfd doorbell = {.fd = job->doorbell, .events = POLLIN};
	uint64_t rings;

	while (reap(job) > 0 && !job->has_hung) {
		if (poll(&doorbell, 1, LOOK_MS) > 0 &&
		    read(job->doorbell, &rings, sizeof rings) < 0)
			perror("the doorbell");
		job_inject_due(job);
		wake(job);
		job->has_hung = clock_now_ns() > deadline;
	}
	if (!job->has_hung)
		return;
	judge_complain(&job->verdict, "the job hangs: it is ended after %d s", most_ms / 1000);
	remains_dump(job->running, job->s->ranks, job->options->tutti_trace);
	job_signal(job, UINT32_MAX, SIGKILL);
	while (reap(job) > 0)
		poll(NULL, 0, LOOK_MS);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* What ranks did to themselves, as far as it came to that. */
static void find_truth(struct job *job)
{
	for (int r = 0; r < scenario_seats(job->s); r++) {
		const struct fault *f = fault_of_rank(job, r, is_kill);
		const struct seat *seat = &job->board->seats[r];
		if (f && WIFSIGNALED(job->status[r]) && WTERMSIG(job->status[r]) == SIGKILL &&
		    !job->has_hung) {
			job->truth.dead_ns[r] = atomic_load(&seat->inject_ns[f - job->s->faults]);
			job->has_happened |= f == scenario_fault(job->s);
		}
		for (int i = 0; i < board_count(seat); i++)
			if (r >= job->s->ranks && seat->events[i].what == HAD_INIT &&
			    seat->events[i].status != TUTTI_OK)
				job->truth.absent |= 1u << r;
		for (int i = 0; i < board_count(seat); i++)
			if (seat->events[i].what == HAD_ABORT) {
				job->truth.aborted_ns = seat->events[i].at_ns;
				job->truth.aborter = 1u << r;
				job->has_happened = true;
			}
	}
}

static void judge_ends(struct job *job)
{
	for (int r = 0; r < scenario_seats(job->s); r++)
		if (job->status[r] != 0 && !job->truth.dead_ns[r] && !job->has_hung)
			judge_complain(&job->verdict, "rank %d ended with %s %d", r,
				       WIFSIGNALED(job->status[r]) ? "signal" : "exit code",
				       WIFSIGNALED(job->status[r]) ? WTERMSIG(job->status[r])
								   : WEXITSTATUS(job->status[r]));
}

static void show_outputs(const struct job *job)
{
	char text[8000];

	for (int r = 0; r < scenario_seats(job->s); r++) {
		ssize_t n = pread(job->outputs[r], text, sizeof text, 0);
		if (n > 0)
			printf("---- rank %d wrote\n%.*s", r, (int)n, text);
	}
}

static void tell(struct job *job, struct result *result)
{
	uint64_t first = judge_first_ns(&job->truth);

	for (int r = 0; r < job->s->ranks && first; r++) {
		uint64_t told = judge_told_ns(job->board, &job->truth, r);
		if (told > first)
			result->told_ms[result->told++] = (double)(told - first) * 1e-6;
	}
	result->has_happened = job->has_happened;
	result->outcome = job->verdict.complaints ? JOB_FAILED : JOB_WELL;
	if (job->skipped && !job->verdict.complaints) {
		result->outcome = JOB_SKIPPED;
		result->why = job->skipped;
	}
}

static void end(struct job *job, int before)
{
	if (job->wire) {
		kill(job->wire, SIGKILL);
		waitpid(job->wire, NULL, 0);
	}
	if (job->hosts.count)
		hosts_close(&job->hosts);
	find_truth(job);
	judge_ends(job);
	judge(&job->verdict, job->board, &job->truth);
	remains_judge(&job->verdict, before, job->options->is_private);
}

/* Without loading it: the ranks are forked from here, and initialise it themselves. */
static bool has_gpus(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library)
		dlclose(library);
	return library != NULL;
}

void job_run(const struct scenario *s, const struct job_options *options, struct result *result)
{
	static struct board *board;
	static struct job job;
	int before = remains_count(options->is_private);
	uint64_t begun = clock_now_ns();

	*result = (struct result){.outcome = JOB_SKIPPED};
	if (!board)
		board = board_open();
	job = (struct job){.s = s, .options = options, .board = board, .truth = {.scenario = s}};
	result->why = board ? NULL : "there is no memory";
	if (s->way == WAY_HOSTS && !result->why)
		result->why = hosts_open(&job.hosts, s->hosts);
	if ((s->way == WAY_VERBS || s->way == WAY_UCX) && !result->why)
		result->why = fabric_lacks(way_names[s->way]);
	if (s->way == WAY_GPUS && !result->why && !has_gpus())
		result->why = "there is no CUDA driver";
	if (result->why)
		return;
	board_clear(board);
	job.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	job_start(&job);
	look_after(&job);
	end(&job, before);
	tell(&job, result);
	result->lasted_s = (double)(clock_now_ns() - begun) * 1e-9;
	if (job.verdict.complaints)
		printf("%s", job.verdict.text);
	if (job.verdict.complaints || options->is_verbose) {
		uint64_t first = judge_first_ns(&job.truth);
		board_show(board, scenario_seats(s), first ? first : begun);
		show_outputs(&job);
	}
	for (int r = 0; r < scenario_seats(s); r++)
		close(job.outputs[r]);
	close(job.doorbell);
}

/* One poll loop over signals, input, output and deadlines, until the job is over. */
#include "supervise.h"

#include "agent.h"
#include "hangs.h"
#include "job.h"
#include "now.h"
#include "relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LINGER_MS 1000 /* for output of a rank's children once all ranks have ended */

enum { AT_SIGNALS, AT_INPUT, AT_WORDS, AT_CONTROL, AT_RELAY };

void supervise_signals(sigset_t *signals)
{
	static const int list[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP, SIGUSR1,
				   SIGUSR2, SIGTSTP, SIGCONT, 0};

	sigemptyset(signals);
	for (int i = 0; list[i]; i++)
		sigaddset(signals, list[i]);
}

void job_end(struct job *j, int exit_code, unsigned after_ms)
{
	j->exit_code = exit_code;
	j->is_restarting = false;
	if (j->is_ending)
		return;
	j->is_ending = true;
	j->term_at = now_ms() + after_ms;
	j->kill_at = j->term_at + FAILED_GRACE_MS + job_agents_grace(j);
}

bool job_is_cut_off(const struct job *j, const struct rank *rank)
{
	int error = j->ranks->out.error;

	return error &&
	       (rank->ending.signal == SIGPIPE || (!rank->ending.signal && error == EPIPE));
}

static int supervise_code_of(const struct job *j, const struct rank *rank)
{
	if (job_is_cut_off(j, rank) && j->ranks->out.error != EPIPE)
		return OUTPUT_LOST;
	return ending_code(&rank->ending);
}

void job_report(struct job *j, struct rank *rank, const char *rest)
{
	char line[600], words[ENDING_BYTES];

	while (stream_pump(&rank->out))
		continue;
	while (stream_pump(&rank->err))
		continue;
	if (job_is_cut_off(j, rank))
		return;
	ending_words(words, rank->name, &rank->ending);
	snprintf(line, sizeof line, "tuttirun: %s%s\n", words, rest);
	sink_say(&j->ranks->err, line);
}

/* Words of ranks that were started again, or that take those in. */
static void supervise_hear_ranks(struct job *j)
{
	struct word_from from;
	int word;

	while ((word = words_next(j->start->words, &from)) != 0) {
		for (int i = 0; word == 'g' && i < j->ranks->n; i++)
			j->ranks->rank[i].is_new = j->ranks->rank[i].waits = false;
		struct rank *rank = ranks_of(j->ranks, from.process);

		if (word == 'w')
			job_hear_waiting(j, rank);
		if (word == 'j' && !rank)
			rank = ranks_numbered(j->ranks, from.rank);
		if (word == 'j' && rank)
			rank->has_joined = true;
	}
}

static void supervise_end_for(struct job *j, struct rank *failed)
{
	char rest[120] = "";

	if (j->options->max_restarts > 0)
		snprintf(rest, sizeof rest, "; the job was ended after %d of %d restarts%s",
			 j->restarts, j->options->max_restarts,
			 j->options->restart != RESTART_JOB &&
					 j->restarts < j->options->max_restarts &&
					 ranks_any_done(j->ranks)
				 ? ": another rank has ended well"
				 : "");
	else if (j->ranks->n * j->options->nodes > 1)
		snprintf(rest, sizeof rest, "; the job was ended");
	job_report(j, failed, rest);
	job_end(j, supervise_code_of(j, failed), job_is_cut_off(j, failed) ? 0 : LAST_WORDS_MS);
}

/* first: the process that ended first of those that have ended since the last look; 0: unknown. */
static void supervise_observe(struct job *j, pid_t first)
{
	struct rank *failed;

	supervise_hear_ranks(j); /* what a rank has said before its end */
	failed = job_restart_failed(j, first);
	if (failed && j->exit_code == 0)
		supervise_end_for(j, failed);
	if (j->ranks->alive == 0 && j->leave_at == NEVER)
		j->leave_at = now_ms() + LINGER_MS;
	if (j->ranks->alive == 0 && j->term_at != NEVER)
		j->term_at = 0; /* what is left of their process groups */
}

static void supervise_pass_end_signal(struct job *j, int signal)
{
	if (signal == SIGINT && ++j->interrupts >= 2) {
		ranks_signal(j->ranks, SIGKILL);
		return;
	}
	ranks_signal(j->ranks, signal);
	if (!j->is_ending)
		job_await_end(j, signal);
	j->is_ending = true;
	if (j->is_restarting) {
		j->is_restarting = false;
		supervise_observe(j, 0); /* perhaps no rank is left to end */
	}
}

/* SIGCHLD of several ranks is one signal, which names the first; from is 0 if that has not ended.
 */
static void supervise_handle_signal(struct job *j, int signal, pid_t from)
{
	switch (signal) {
	case SIGCHLD:
		supervise_observe(j, from);
		break;
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
		supervise_pass_end_signal(j, signal);
		break;
	case SIGTSTP:
		ranks_signal(j->ranks, SIGSTOP);
		raise(SIGSTOP);
		break;
	default: /* SIGUSR1, SIGUSR2, SIGCONT */
		ranks_signal(j->ranks, signal);
	}
}

static void supervise_handle_signals(struct job *j)
{
	struct signalfd_siginfo info;

	while (read(j->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		bool is_end = info.ssi_code == CLD_EXITED || info.ssi_code == CLD_KILLED ||
			      info.ssi_code == CLD_DUMPED;
		supervise_handle_signal(j, (int)info.ssi_signo, is_end ? (pid_t)info.ssi_pid : 0);
	}
}

/* The tuttirun that has started this one wants its ranks to end, or has gone. */
static void supervise_end_agent(struct job *j)
{
	uint64_t now = now_ms(), latest = now + FAILED_GRACE_MS;

	if (!j->is_ending)
		job_end(j, 128 + SIGTERM, 0);
	j->term_at = now;
	j->kill_at = j->kill_at < latest ? j->kill_at : latest;
}

static void supervise_hear_control(struct job *j)
{
	char word;
	ssize_t n = read(j->control_fd, &word, 1);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0)
		j->control_fd = -1;
	if (n <= 0 || word == AGENT_END)
		supervise_end_agent(j);
	else if (word == SIGSTOP)
		ranks_signal(j->ranks, SIGSTOP); /* its own process goes on, to hear of SIGCONT */
	else
		supervise_handle_signal(j, word, 0);
}

static void supervise_handle_deadlines(struct job *j)
{
	uint64_t now = now_ms();
	char line[120];

	if (now >= j->timeout_at) {
		j->timeout_at = NEVER;
		snprintf(line, sizeof line,
			 "tuttirun: the job was ended: it ran longer than %g s (--timeout)\n",
			 j->options->timeout_s);
		sink_say(&j->ranks->err, line);
		if (!j->start->hosts)
			hangs_report(j->ranks, j->start);
		job_end(j, TIMEOUT_CODE, 0);
	}
	if (now >= j->tell_at) {
		j->tell_at = NEVER;
		job_say_unended(j);
	}
	if (now_ms() >= j->term_at) {
		j->term_at = NEVER;
		ranks_end(j->ranks);
	}
	if (now >= j->kill_at) {
		j->kill_at = NEVER;
		ranks_signal(j->ranks, SIGKILL);
	}
}

static int supervise_until_deadline(const struct job *j)
{
	uint64_t at = j->timeout_at, now = now_ms();

	at = j->term_at < at ? j->term_at : at;
	at = j->kill_at < at ? j->kill_at : at;
	at = j->tell_at < at ? j->tell_at : at;
	at = progress_due_ms(&j->progress) < at ? progress_due_ms(&j->progress) : at;
	at = relay_due_ms(j->ranks) < at ? relay_due_ms(j->ranks) : at;
	if (j->leave_at > now) /* later only a reader of ours is waited for */
		at = j->leave_at < at ? j->leave_at : at;
	if (at == NEVER)
		return -1;
	if (at <= now)
		return 0;
	return at - now > 1000000 ? 1000000 : (int)(at - now);
}

static bool supervise_is_over(struct job *j)
{
	bool is_late = now_ms() >= j->leave_at;

	if (j->ranks->alive > 0)
		return false;
	if (j->is_restarting && is_late)
		relay_leave(j->ranks, true);
	if (j->is_restarting && (is_late || relay_is_empty(j->ranks)))
		job_restart_all(j);
	if (j->ranks->alive > 0 || j->is_restarting)
		return false;
	if (is_late)
		relay_leave(j->ranks, j->is_ending);
	if (is_late && j->is_ending)
		return true; /* perhaps with output that no process reads */
	return relay_is_empty(j->ranks);
}

static void supervise_turn(struct job *j)
{
	j->poll[AT_SIGNALS] = (struct pollfd){.fd = j->signal_fd, .events = POLLIN};
	j->poll[AT_INPUT] = input_interest(&j->input);
	j->poll[AT_WORDS] = (struct pollfd){.fd = j->start->words->fd, .events = POLLIN};
	relay_interests(j->ranks, j->poll + AT_RELAY);
	j->poll[AT_CONTROL] = (struct pollfd){.fd = j->control_fd, .events = POLLIN};
	if (poll(j->poll, (nfds_t)(AT_RELAY + relay_polls(j->ranks)), supervise_until_deadline(j)) <
	    0)
		return; /* interrupted: look again */
	if (relay_writes(j->poll + AT_RELAY))
		progress_erase(&j->progress);
	if (j->poll[AT_INPUT].revents)
		input_pump(&j->input);
	relay_move(j->ranks, j->poll + AT_RELAY, ++j->turn);
	if (j->poll[AT_SIGNALS].revents)
		supervise_handle_signals(j);
	if (j->poll[AT_WORDS].revents)
		supervise_hear_ranks(j);
	if (j->poll[AT_CONTROL].revents)
		supervise_hear_control(j);
	supervise_handle_deadlines(j);
	progress_draw(&j->progress, j->ranks, j->start->hosts);
}

int launch_supervise(struct ranks *ranks, const struct start *start, int signal_fd)
{
	const struct options *options = start->options;
	struct job j = {
		.ranks = ranks,
		.start = start,
		.options = options,
		.input.to_fd = ranks->input_fd,
		.signal_fd = signal_fd,
		.control_fd = options->is_agent ? STDIN_FILENO : -1,
		.progress = progress_begin(options),
		.timeout_at = NEVER,
		.term_at = NEVER,
		.kill_at = NEVER,
		.leave_at = NEVER,
		.tell_at = NEVER,
	};

	if (options->timeout_s > 0)
		j.timeout_at = now_ms() + (uint64_t)(options->timeout_s * 1000);
	j.poll = calloc((size_t)(AT_RELAY + relay_polls(ranks)), sizeof *j.poll);
	if (!j.poll) {
		fprintf(stderr, "tuttirun: no memory to watch %d ranks.\n", ranks->n);
		ranks_signal(ranks, SIGKILL);
		return 1;
	}
	while (!supervise_is_over(&j))
		supervise_turn(&j);
	progress_erase(&j.progress);
	if (j.is_ending)
		ranks_signal(ranks, SIGKILL); /* what is left of the ranks' process groups */
	ranks->input_fd = j.input.to_fd;
	free(j.poll);
	if (j.exit_code == 0 && ranks->out.error && ranks->out.error != EPIPE)
		return OUTPUT_LOST;
	return j.exit_code;
}

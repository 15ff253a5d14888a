/* tutti-trace calls: a line for each rank, on the call that it is in. */
#include "merge.h"

#include "core/words/number.h"
#include "tools/job.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static double calls_seconds(int64_t since_ns, int64_t now_ns)
{
	return now_ns > since_ns ? (double)(now_ns - since_ns) * 1e-9 : 0;
}

enum { NAME_BYTES = 120 };

/* With what it is for: "send to 3 (unit h.3)". Returns text. */
static const char *calls_name_of(const struct trace_op *op, char text[NAME_BYTES])
{
	char name[ATTACH_OP_BYTES];

	attach_op_name(op, name);
	snprintf(text, NAME_BYTES, "%s%s%s%s", name, op->label[0] ? " (" : "", op->label,
		 op->label[0] ? ")" : "");
	return text;
}

/* The calls that are under way on a communicator. Returns how many there are. */
static int calls_print_running(int rank, const struct trace_process *p, const struct trace_comm *c)
{
	char name[NAME_BYTES];
	int count = 0;

	for (size_t k = 0; k < c->op_count; k++) {
		const struct trace_op *op = &c->ops[k];

		if (op->state != TRACE_STATE_RUNS)
			continue;
		printf("rank %d (pid %d) is in %s of communicator %08x%s%s for %.3f s", rank,
		       p->pid, calls_name_of(op, name), (unsigned)(c->name >> 32),
		       c->title[0] ? " " : "", c->title, calls_seconds(op->begin_ns, p->now_ns));
		if (c->waits[0] && c->waits_index == op->index)
			printf(" and waits %s", c->waits);
		printf("\n");
		count++;
	}
	return count;
}

/* Short calls that were over at once have no time: such a call may be as old as the one before it
 * that has one. */
static const struct trace_op *calls_last_of(const struct trace_process *p)
{
	const struct trace_op *last = NULL;

	for (size_t i = 0; i < p->comm_count; i++) {
		const struct trace_comm *c = &p->comms[i];
		const struct trace_op *op = c->op_count ? &c->ops[c->op_count - 1] : NULL;

		if (op && (!last || op->earliest_ns > last->earliest_ns))
			last = op;
	}
	return last;
}

static void calls_print_process(int rank, const struct trace_process *p)
{
	const struct trace_op *last = calls_last_of(p);
	char name[NAME_BYTES];
	int running = 0;

	for (size_t i = 0; i < p->comm_count; i++)
		running += calls_print_running(rank, p, &p->comms[i]);
	if (running)
		return;
	printf("rank %d (pid %d) is not in a call of Tutti", rank, p->pid);
	if (last)
		printf("; its last one was %s, %s%.3f s ago", calls_name_of(last, name),
		       last->earliest_ns < last->latest_ns ? "at most " : "",
		       calls_seconds(last->end_ns == TRACE_UNKNOWN ? last->earliest_ns
								   : last->end_ns,
				     p->now_ns));
	printf("\n");
}

/* True: the process has communicators. why: else the reason. */
static bool calls_try_process(int pid, int rank, enum attach_code *code, char *why,
			      size_t why_bytes)
{
	struct trace_process process;

	*code = attach_read(pid, &process, why, why_bytes);
	if (*code != ATTACH_OK)
		return false;
	calls_print_process(rank < 0 && process.comm_count ? process.comms[0].rank : rank,
			    &process);
	trace_process_free(&process);
	return true;
}

static void calls_print_job(int launcher)
{
	struct job_list list = job_list(launcher);
	enum attach_code code;
	bool has_line = false;
	char why[600];

	for (size_t i = 0; i < list.count; i++) {
		const struct job_process *p = &list.processes[i];

		has_line &= p->pid != p->leader;
		has_line |= calls_try_process(p->pid, p->rank, &code, why, sizeof why);
		if (!has_line && code != ATTACH_NO_TUTTI)
			fprintf(stderr, "tutti-trace: %s\n", why);
		if (!has_line && (i + 1 == list.count || p[1].leader != p->leader))
			printf("rank %d (pid %d) has no communicator: it waits in tutti_init, or "
			       "is not in a call of Tutti\n",
			       p->rank, p->leader);
	}
	free(list.processes);
}

int trace_calls(const struct arguments *arguments)
{
	enum attach_code first = ATTACH_OK, code;
	char why[600];

	for (int i = 0; i < arguments->word_count; i++) {
		int pid = 0;

		number_read_int(arguments->words[i], 1, INT_MAX, &pid);
		if (job_is_launcher(pid)) {
			calls_print_job(pid);
			continue;
		}
		if (!calls_try_process(pid, -1, &code, why, sizeof why))
			fprintf(stderr, "tutti-trace: %s\n", why);
		first = first == ATTACH_OK ? code : first;
	}
	return first;
}

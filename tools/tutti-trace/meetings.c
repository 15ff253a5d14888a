/* Which operations of the ranks are one collective: those of the same number on the same
 * communicator. */
#include "merge.h"

#include "tools/must.h"

#include <string.h>

static const char *meetings_host_of(const struct trace_process *p)
{
	return p->boot[0] ? p->boot : p->host;
}

/* Processes of one boot of a machine have one clock. */
static int number_host(const struct log *log, size_t process, int *hosts)
{
	for (size_t i = 0; i < process; i++)
		if (strcmp(meetings_host_of(&log->processes[i]),
			   meetings_host_of(&log->processes[process])) == 0)
			return log->processes[i].host_number;
	return (*hosts)++;
}

static int by_meeting(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->comm->name != y->comm->name)
		return x->comm->name < y->comm->name ? -1 : 1;
	if (x->op->sequence != y->op->sequence)
		return x->op->sequence < y->op->sequence ? -1 : 1;
	if (x->comm->rank != y->comm->rank)
		return x->comm->rank < y->comm->rank ? -1 : 1;
	return (x->op->index > y->op->index) - (x->op->index < y->op->index);
}

/* Of a collective that takes several rounds (comm_split) the first round stands for all. */
static void drop_repeats(struct parts *parts)
{
	size_t kept = 0;

	for (size_t i = 0; i < parts->count; i++) {
		const struct part *last = kept ? &parts->part[kept - 1] : NULL;
		if (last && last->comm->name == parts->part[i].comm->name &&
		    last->op->sequence == parts->part[i].op->sequence &&
		    last->comm->rank == parts->part[i].comm->rank)
			continue;
		parts->part[kept++] = parts->part[i];
	}
	parts->count = kept;
}

static size_t count_ops(const struct log *log)
{
	size_t n = 0;

	for (size_t i = 0; i < log->count; i++)
		for (size_t c = 0; c < log->processes[i].comm_count; c++)
			n += log->processes[i].comms[c].op_count;
	return n;
}

void parts_find(struct parts *parts, struct log *log)
{
	*parts = (struct parts){.part = must_alloc(count_ops(log), sizeof *parts->part)};
	for (size_t i = 0; i < log->count; i++) {
		struct trace_process *p = &log->processes[i];
		p->host_number = number_host(log, i, &parts->hosts);
		for (size_t c = 0; c < p->comm_count; c++)
			for (size_t k = 0; k < p->comms[c].op_count; k++) {
				struct trace_op *op = &p->comms[c].ops[k];
				if (op->sequence >= 0)
					parts->part[parts->count++] =
						(struct part){p, &p->comms[c], op};
			}
	}
	qsort(parts->part, parts->count, sizeof *parts->part, by_meeting);
	drop_repeats(parts);
}

void parts_free(struct parts *parts)
{
	free(parts->part);
}

size_t parts_end(const struct parts *parts, size_t i)
{
	const struct part *first = &parts->part[i];

	while (i < parts->count && parts->part[i].comm->name == first->comm->name &&
	       parts->part[i].op->sequence == first->op->sequence)
		i++;
	return i;
}

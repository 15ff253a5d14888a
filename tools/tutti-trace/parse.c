/* Understands the JSON that trace_write, or another program, has written. No number is used before
 * it is checked. The functions return what is wrong, or NULL. */
#include "merge.h"

#include "core/json_text.h"
#include "tools/must.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MOST  ((int64_t)TRACE_NS_MOST)
#define DATE_MOST  ((int64_t)(TRACE_DATE_MOST / 1000000000))
#define COUNT_MOST INT64_C(9007199254740992) /* a double counts up to this number */
#define RANK_MOST  (1 << 24)

static const char bad_number[] = "a number is out of its range";

static bool parse_is_in(json_int_t value, int64_t least, int64_t most)
{
	return value >= least && value <= most;
}

static bool parse_copy_text(char *to, size_t bytes, const char *text)
{
	if (strlen(text) >= bytes)
		return false;
	strcpy(to, text);
	trace_clean(to, bytes);
	return true;
}

/* The text "" stands for an unknown time. */
static bool parse_time(const json_t *value, int64_t start_ns, int64_t *ns)
{
	if (json_is_string(value)) {
		*ns = TRACE_UNKNOWN;
		return json_string_length(value) == 0;
	}
	if (!json_is_integer(value) ||
	    !parse_is_in(json_integer_value(value), -TIME_MOST, TIME_MOST))
		return false;
	*ns = start_ns + json_integer_value(value);
	return true;
}

static bool parse_state(const char *word, enum trace_state *state)
{
	for (int i = 0; i < TRACE_STATES; i++)
		if (strcmp(word, trace_state_names[i]) == 0) {
			*state = (enum trace_state)i;
			return true;
		}
	return false;
}

/* As trace_write_whole_op writes it. */
static const char *tutti_trace_parse_op(json_t *value, struct trace_op *op, int64_t start_ns)
{
	json_int_t index, sequence, count, bytes, peer, is_async, is_grouped;
	const char *name, *dtype, *algorithm, *state;
	json_t *earliest, *latest, *begin, *end;

	if (json_unpack_ex(value, NULL, JSON_STRICT, "[IIsssIIIsIIoooo]", &index, &sequence, &name,
			   &dtype, &algorithm, &count, &bytes, &peer, &state, &is_async,
			   &is_grouped, &earliest, &latest, &begin, &end) != 0)
		return "an operation has too few, too many or wrong values";
	if (!parse_is_in(index, 0, COUNT_MOST) || !parse_is_in(sequence, -1, COUNT_MOST) ||
	    !parse_is_in(count, 0, COUNT_MOST) || !parse_is_in(bytes, 0, COUNT_MOST) ||
	    !parse_is_in(peer, -1, RANK_MOST) || !parse_is_in(is_async, 0, 1) ||
	    !parse_is_in(is_grouped, 0, 1))
		return bad_number;
	if (!parse_copy_text(op->name, sizeof op->name, name) ||
	    !parse_copy_text(op->dtype, sizeof op->dtype, dtype) ||
	    !parse_copy_text(op->algorithm, sizeof op->algorithm, algorithm))
		return "an operation has a text that is too long";
	if (!parse_state(state, &op->state))
		return "an operation has an unknown state";
	if (!parse_time(earliest, start_ns, &op->earliest_ns) ||
	    !parse_time(latest, start_ns, &op->latest_ns) ||
	    !parse_time(begin, start_ns, &op->begin_ns) ||
	    !parse_time(end, start_ns, &op->end_ns) || op->earliest_ns == TRACE_UNKNOWN ||
	    op->earliest_ns > op->begin_ns || op->begin_ns > op->latest_ns)
		return "an operation has no time";
	op->index = (uint64_t)index;
	op->sequence = sequence;
	op->count = (uint64_t)count;
	op->bytes = (uint64_t)bytes;
	op->peer = (int)peer;
	op->is_async = is_async;
	op->is_grouped = is_grouped;
	return NULL;
}

static const char *parse_ops(json_t *array, struct trace_comm *c, int64_t start_ns)
{
	const char *problem = NULL;
	size_t n = json_array_size(array);

	if (!json_is_array(array))
		return "a communicator has no operations";
	c->ops = n ? must_alloc(n, sizeof *c->ops) : NULL;
	for (; c->op_count < n && !problem; c->op_count += !problem)
		problem = tutti_trace_parse_op(json_array_get(array, c->op_count),
					       &c->ops[c->op_count], start_ns);
	return problem;
}

/* Numbers of operations, in their order, and what these are for. */
static const char *parse_labels(json_t *array, struct trace_comm *c)
{
	json_int_t index;
	const char *text;
	json_t *value;
	size_t i, k = 0;

	json_array_foreach(array, i, value)
	{
		if (json_unpack_ex(value, NULL, JSON_STRICT, "[Is]", &index, &text) != 0 ||
		    !parse_is_in(index, 0, COUNT_MOST))
			return "a label is damaged";
		while (k < c->op_count && c->ops[k].index < (uint64_t)index)
			k++;
		if (k == c->op_count || c->ops[k].index != (uint64_t)index ||
		    !parse_copy_text(c->ops[k].label, sizeof c->ops[k].label, text))
			return "a label is of no operation, or too long";
	}
	return NULL;
}

static const char *parse_waits(json_t *value, struct trace_comm *c)
{
	json_int_t index, rank;
	const char *text;

	if (json_unpack_ex(value, NULL, 0, "{sI,sI,ss}", "index", &index, "rank", &rank, "text",
			   &text) != 0 ||
	    !parse_is_in(index, 0, COUNT_MOST) || !parse_is_in(rank, -1, RANK_MOST) ||
	    !parse_copy_text(c->waits, sizeof c->waits, text))
		return "what a communicator waits for is damaged";
	c->waits_index = (uint64_t)index;
	c->waits_rank = (int)rank;
	return NULL;
}

static const char *parse_comm(json_t *value, struct trace_comm *c, int64_t start_ns)
{
	json_int_t rank, size, node, nodes, status, issued;
	json_t *waits = NULL, *labels = NULL, *operations;
	const char *name, *way, *title = "", *problem;
	char *end;

	if (json_unpack_ex(value, NULL, 0, "{ss,sI,sI,sI,sI,ss,sI,sI,s?s,s?o,s?o,so}", "name",
			   &name, "rank", &rank, "size", &size, "node", &node, "nodes", &nodes,
			   "way", &way, "status", &status, "issued", &issued, "title", &title,
			   "labels", &labels, "waits", &waits, "operations", &operations) != 0)
		return "a communicator lacks something";
	c->name = strtoull(name, &end, 16);
	if (*end || end == name)
		return "a communicator's name is no number";
	if (!parse_is_in(size, 1, RANK_MOST) || !parse_is_in(rank, 0, size - 1) ||
	    !parse_is_in(node, 0, RANK_MOST) || !parse_is_in(nodes, 1, RANK_MOST) ||
	    !parse_is_in(status, 0, 0xffff) || !parse_is_in(issued, 0, COUNT_MOST))
		return bad_number;
	if (!parse_copy_text(c->way, sizeof c->way, way) ||
	    !parse_copy_text(c->title, sizeof c->title, title))
		return "a communicator has a text that is too long";
	c->rank = (int)rank;
	c->size = (int)size;
	c->node_rank = (int)node;
	c->num_nodes = (int)nodes;
	c->status = (int)status;
	c->issued = (uint64_t)issued;
	problem = waits ? parse_waits(waits, c) : NULL;
	if (!problem)
		problem = parse_ops(operations, c, start_ns);
	return problem ? problem : parse_labels(labels, c);
}

static const char *parse_comms(json_t *array, struct trace_process *p)
{
	const char *problem = NULL;
	size_t n = json_array_size(array);

	if (!json_is_array(array))
		return "a process has no communicators";
	p->comms = n ? must_alloc(n, sizeof *p->comms) : NULL;
	while (p->comm_count < n && !problem) {
		struct trace_comm *c = &p->comms[p->comm_count];
		*c = (struct trace_comm){.waits_rank = -1};
		problem = parse_comm(json_array_get(array, p->comm_count++), c, p->start_ns);
	}
	return problem;
}

static const char *parse_process(json_t *value, struct trace_process *p)
{
	json_int_t pid, start_s, start_ns, date_s, date_ns, read;
	const char *host, *boot, *library;
	json_t *comms;

	if (json_unpack_ex(value, NULL, 0, "{sI,ss,ss,ss,sI,sI,sI,sI,sI,so}", "pid", &pid, "host",
			   &host, "boot", &boot, "library", &library, "start_s", &start_s,
			   "start_ns", &start_ns, "date_s", &date_s, "date_ns", &date_ns, "read",
			   &read, "communicators", &comms) != 0)
		return "a process lacks something";
	if (!parse_is_in(pid, 0, INT32_MAX) || !parse_is_in(start_s, 0, TIME_MOST / 1000000000) ||
	    !parse_is_in(start_ns, 0, 999999999) || !parse_is_in(date_s, 0, DATE_MOST) ||
	    !parse_is_in(date_ns, 0, 999999999) || !parse_is_in(read, 0, TIME_MOST))
		return bad_number;
	if (!parse_copy_text(p->host, sizeof p->host, host) ||
	    !parse_copy_text(p->boot, sizeof p->boot, boot) ||
	    !parse_copy_text(p->library, sizeof p->library, library))
		return "a process has a text that is too long";
	p->pid = (int)pid;
	p->start_ns = start_s * 1000000000 + start_ns;
	p->real_ns = date_s * 1000000000 + date_ns;
	p->now_ns = p->start_ns + read;
	return parse_comms(comms, p);
}

/* The value of "tutti" in the file. */
static const char *parse_log(json_t *ours, struct log *log)
{
	json_t *processes, *value;
	json_int_t format;
	size_t i;

	if (json_unpack_ex(ours, NULL, 0, "{sI,so}", "format", &format, "processes", &processes))
		return "it is no trace of tutti-trace";
	if (format != 1)
		return "it is of another version of tutti-trace";
	if (!json_is_array(processes))
		return "it has no processes";
	json_array_foreach(processes, i, value)
	{
		struct trace_process process = {0};
		const char *problem = parse_process(value, &process);
		if (problem) {
			trace_process_free(&process);
			return problem;
		}
		log_add(log, &process);
	}
	return NULL;
}

bool load_text(struct log *log, const char *text, char *why, size_t why_bytes)
{
	char syntax[200];
	json_t *read = json_text_read(text, strlen(text), syntax);
	const char *problem = read ? parse_log(json_object_get(read, "tutti"), log) : syntax;

	json_decref(read);
	if (problem)
		snprintf(why, why_bytes, "%s", problem);
	return !problem;
}

/* Would break: tutti-trace merge, by the files that it is given, which are separated by form feeds.
 * What it writes it can read again, and that is the same. */
#include "fuzz.h"

#include "tools/tutti-trace/merge.h"

#include <string.h>

static char *written(const struct log *log)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	MUST(file);
	trace_write(file, log->processes, log->count);
	MUST(fclose(file) == 0);
	return text;
}

static void report(struct log *log)
{
	struct parts parts = {0};
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	MUST(file);
	parts_find(&parts, log);
	clocks_align(log, &parts, file);
	late_report(log, &parts, true, file);
	MUST(fclose(file) == 0);
	free(text);
	parts_free(&parts);
}

static void read_again(const struct log *log)
{
	struct log again = {0};
	char *text = written(log), why[300];

	MUST(load_text(&again, text, why, sizeof why));
	MUST(again.count == log->count);
	for (size_t i = 0; i < log->count; i++) {
		MUST(again.processes[i].comm_count == log->processes[i].comm_count);
		for (size_t c = 0; c < log->processes[i].comm_count; c++) {
			const struct trace_comm *x = &log->processes[i].comms[c];
			const struct trace_comm *y = &again.processes[i].comms[c];
			MUST(x->op_count == y->op_count && x->name == y->name);
			for (size_t k = 0; k < x->op_count; k++)
				MUST(x->ops[k].begin_ns == y->ops[k].begin_ns &&
				     x->ops[k].end_ns == y->ops[k].end_ns);
		}
	}
	free(text);
	log_free(&again);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char *text = input_text(&in), *next = text, why[300] = "";
	struct log log = {0};
	bool is_read = true;

	while (is_read && next) {
		char *one = strdup(strsep(&next, "\f")); /* its own end */
		MUST(one);
		is_read = load_text(&log, one, why, sizeof why);
		MUST(is_read || strlen(why) > 0);
		free(one);
	}
	report(&log);
	if (is_read)
		read_again(&log);
	log_free(&log);
	free(text);
}

/* The words --ranks N of a program's command line. */
#include "core/callback.h"
#include "core/rank/ending.h"
#include "core/rank/variables.h"
#include "collectives/spawn/spawn.h"

#include <tutti/tutti.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "--ranks"

struct program {
	int (*fn)(int argc, char **argv);
	int argc;
	char **argv;
};

static int main_run(int rank, void *arg)
{
	const struct program *p = arg;

	(void)rank;
	int code;
	callback_call("the function", "tutti_main", -1, code = p->fn(p->argc, p->argv));
	return code;
}

/* Copies argv without --ranks N or --ranks=N, of which *value is the last N; NULL: there is none.
 */
static void spawn_take_option(struct program *p, int argc, char **argv, const char **value)
{
	size_t length = strlen(OPTION);
	bool is_over = false;

	for (int i = 0; i < argc; i++) {
		bool is_ours = !is_over && i > 0 && strncmp(argv[i], OPTION, length) == 0;

		is_over |= strcmp(argv[i], "--") == 0;
		if (is_ours && argv[i][length] == '=')
			*value = argv[i] + length + 1;
		else if (is_ours && !argv[i][length])
			*value = i + 1 < argc ? argv[++i] : "";
		else
			p->argv[p->argc++] = argv[i];
	}
}

__attribute__((format(printf, 1, 2))) static int main_refuse(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	return 2;
}

/* Here, with the exit code that a rank of tutti_spawn would have. */
static int main_run_here(struct program *p)
{
	int code = main_run(0, p);
	const char *lost = code == 0 ? spawn_output_lost() : NULL;

	if (!lost)
		return code;
	main_refuse("the output could not be written: %s", lost);
	return OUTPUT_LOST;
}

static int main_start(struct program *p, const char *value)
{
	int launched = tutti_launched();
	char *end;
	long n = strtol(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || n < 1 || n > RANKS_MAX)
		return main_refuse(OPTION " '%s' is not possible: it is a number from 1 to %d",
				   value, RANKS_MAX);
	if (launched < 0)
		return main_refuse("%s", tutti_comm_error(NULL));
	if (launched == n)
		return main_run_here(p);
	if (launched > 0)
		return main_refuse(OPTION " %ld starts ranks where no launcher does, and one has "
					  "started %d: leave it out",
				   n, launched);
	if (tutti_spawn(main_run, p, (int)n) != TUTTI_OK)
		main_refuse("%s", tutti_comm_error(NULL));
	return tutti_spawn_exit_code();
}

int tutti_main(int argc, char **argv, int (*fn)(int argc, char **argv))
{
	struct program p = {.fn = fn};
	const char *value = NULL;
	int code;

	p.argv = calloc((size_t)argc + 1, sizeof *p.argv);
	if (!p.argv)
		return main_refuse("no memory for the command line");
	spawn_take_option(&p, argc, argv, &value);
	code = value ? main_start(&p, value) : main_run_here(&p);
	free(p.argv);
	return code;
}

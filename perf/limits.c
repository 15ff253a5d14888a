/* limits: what the machine can do, and what Tutti costs apart from the data it moves. Only the
 * command line; the measurements are in the files beside this one. */
#include "limits.h"

#include "core/program/line.h"
#include "core/program/output.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const struct part {
	const char *name;
	int (*measure)(struct trial *trial);
} parts[] = {
	{"bandwidth", limits_bandwidth}, {"flag", limits_flag}, {"loopback", limits_loopback},
	{"call", limits_call},           {"idle", limits_idle}, {"gpu", limits_gpu},
};

#define PARTS (sizeof parts / sizeof *parts)

static struct settings {
	const char *path;
	int timeout_s;
} settings = {.timeout_s = 120};

static const struct line_option limits_options[] = {
	{"json", 'J', "FILE", .at = offsetof(struct settings, path), .kind = LINE_TEXT,
	 .help = "writes the figures as JSON too"},
	{"timeout", 0, "S", .at = offsetof(struct settings, timeout_s), 1, 86400, NULL,
	 "ends the ranks of a measurement after so many seconds (120)"},
	{0},
};
static const char limits_about[] =
	"What this machine can do, and what Tutti costs apart from the data. All parts, or these:\n"
	"  bandwidth   memory bandwidth in the access patterns of collectives\n"
	"  flag        one signal from core to core\n"
	"  loopback    TCP over loopback\n"
	"  call        one blocking call against a bare exchange of lines\n"
	"  idle        processor time of a rank that has nothing to do\n"
	"  gpu         a GPU's memory, and its way to the host\n"
	"Exit code: 0; 2 for a line that cannot be understood; 3 when something failed.";
static const struct line_table limits_line = {
	.options = limits_options, .operands = " [PART...]", .about = limits_about};

static const struct part *limits_find(const char *name)
{
	for (size_t i = 0; i < PARTS; i++)
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
	return NULL;
}

static bool limits_measure_part(const struct part *part)
{
	static struct shared *shared;

	if (!shared)
		shared = limits_map(sizeof *shared);
	if (shared && part->measure(&(struct trial){.shared = shared}) == 0)
		return true;
	fprintf(stderr, "limits: %s was not measured.\n", part->name);
	return false;
}

static bool limits_measure(char **names, int n)
{
	bool is_well = true;

	for (size_t i = 0; n == 0 && i < PARTS; i++)
		is_well &= limits_measure_part(&parts[i]);
	for (int i = 0; i < n; i++)
		is_well &= limits_measure_part(limits_find(names[i]));
	output_flush();
	return output_is_well() && is_well;
}

int main(int argc, char **argv)
{
	int code;
	bool is_well;

	if (!output_open())
		return 3;
	code = line_parse(&limits_line, &settings, argc, argv);
	if (code >= 0)
		return code;
	for (int i = optind; i < argc; i++)
		if (!limits_find(argv[i]))
			return line_wrong("there is no part '%s'.", argv[i]);
	limits_timeout_s = settings.timeout_s;
	if (!limits_open(settings.path))
		return 2;
	is_well = limits_measure(argv + optind, argc - optind);
	return limits_close(is_well) == 0 && is_well ? 0 : 3;
}

/* The command line of tutti-plan: what is asked, and the machine that the options describe. */
#include "arguments.h"

#include "units.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/program/line.h"
#include "core/words/number.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX          65536
#define CHECK_RANKS_MAX    1024
#define PIPELINE_MAX       4096 /* ranks, micro-batches, chunks */
#define PIPELINE_TASKS_MAX 1000000
#define WORD_BYTES         200 /* of a list */

/* ---- the options ---- */

/* "1,1,1" or "1,1,1,0.5". */
static bool arguments_read_times(const char *text, void *at)
{
	struct action_times *times = at;
	double *const to[] = {&times->forward, &times->inputs, &times->weights, &times->transfer};
	char copy[WORD_BYTES], *rest = copy, *word;
	int n = 0;

	if (snprintf(copy, sizeof copy, "%s", text) >= WORD_BYTES)
		return false;
	while ((word = strsep(&rest, ",")))
		if (n == 4 || !number_read_real(word, 0, 1e6, to[n++]))
			return false;
	return n >= 3 && times->forward + times->inputs + times->weights > 0;
}

/* "8", or "1-64,100". */
static bool arguments_read_ranks(const char *text, void *to)
{
	struct rank_ranges *ranks = to;
	char copy[WORD_BYTES], *rest = copy, *word;

	if (ranks->count || snprintf(copy, sizeof copy, "%s", text) >= WORD_BYTES)
		return false;
	while ((word = strsep(&rest, ","))) {
		struct rank_range *range = &ranks->of[ranks->count];
		char *dash = strchr(word, '-'), *last = dash ? dash + 1 : word;

		if (dash)
			*dash = '\0';
		if (ranks->count++ == RANGES_MAX ||
		    !number_read_int(word, 1, RANKS_MAX, &range->first) ||
		    !number_read_int(last, range->first, RANKS_MAX, &range->last))
			return false;
	}
	return true;
}

/* The names of all of them. */
static const char *dtypes[TUTTI_U64 + 2], *ops[OPS_BUILT_IN + 1];

#define AT(member)    .at = offsetof(struct arguments, member)
#define NET(member)   AT(machine.links.link[LINK_NET].member)
#define LOCAL(member) AT(machine.links.link[LINK_LOCAL].member)
#define TIME          .parse = units_seconds, .wanted = "a time such as 500ns or 20us"
#define RATE          .parse = units_rate, .wanted = "a rate such as 1.2GB/s or 100Gbit/s"

static const struct line_option arguments_options[] = {
	{"rank", 0, "R", AT(rank), 0, RANKS_MAX - 1, .help = "show: this rank only"},
	{"ranks", 0, "P", AT(ranks), .parse = arguments_read_ranks, .wanted = "a number of ranks",
	 .help = "explain, simulate: how many ranks there are"},
	{"root", 0, "R", AT(root), 0, RANKS_MAX - 1,
	 .help = "of collectives that have one (show, simulate: 0; check: several)"},
	{"nodes", 0, "N", AT(nodes), 1, RANKS_MAX,
	 .help = "the ranks lie on N nodes, equally many on each (simulate: at P ranks; with\n"
		 "fewer ranks there are fewer nodes as large)"},
	{"in-place", 0, NULL, AT(in_place), .kind = LINE_BOOL,
	 .help = "show: the plan for a call in place,"},
	{"staged", 0, NULL, AT(options.staged), .kind = LINE_BOOL,
	 .help = "of buffers that no transport touches,"},
	{"scaled", 0, NULL, AT(options.scaled), .kind = LINE_BOOL, .help = "or for a scaled sum"},
	{"links", 0, "FILE", AT(links), .kind = LINE_TEXT,
	 .help = "the links measured last into a file that TUTTI_LINKS names; else what the\n"
		 "library assumes, in brackets",
	 .wanted = "the name of a file"},
	{"alpha", 0, "TIME", NET(alpha), TIME,
	 .help = "what a message takes, whatever its size (20us)"},
	{"overhead", 0, "TIME", NET(overhead), TIME,
	 .help = "for how much of alpha it occupies its ports (all, or 4us)"},
	{"beta", 0, "RATE", NET(beta), RATE, .help = "how fast its bytes go (1.2GB/s)"},
	{"node-beta", 0, "RATE", AT(machine.node_beta), RATE,
	 .help = "how fast the bytes of all ranks of a node leave and enter it, together\n"
		 "(as --beta)"},
	{"local-alpha", 0, "TIME", LOCAL(alpha), TIME,
	 .help = "inside a node, if --nodes is given (1us)"},
	{"local-overhead", 0, "TIME", LOCAL(overhead), TIME, .help = "the same (300ns)"},
	{"local-beta", 0, "RATE", LOCAL(beta), RATE, .help = "the same (4GB/s)"},
	{"gamma", 0, "RATE", AT(machine.links.gamma), RATE, .help = "how fast a rank adds (8GB/s)"},
	{"slice", 0, "SIZE", AT(machine.slice_bytes), 64, .kind = LINE_BYTES,
	 .help = "TUTTI_SLICE_BYTES (256K)"},
	{"scratch", 0, "SIZE", AT(machine.scratch_bytes), 65536, .kind = LINE_BYTES,
	 .help = "TUTTI_SCRATCH_BYTES (4M)"},
	{"dtype", 0, "TYPE", AT(dtype), .kind = LINE_CHOICE, .choices = dtypes,
	 .help = "explain: of the call (f32)"},
	{"op", 0, "OP", AT(op), .kind = LINE_CHOICE, .choices = ops,
	 .help = "explain: of the call (sum)"},
	{"deterministic", 0, NULL, AT(deterministic), .kind = LINE_BOOL,
	 .help = "explain: of the communicator"},
	{"stages", 0, "P", AT(shape.ranks), 1, PIPELINE_MAX,
	 .help = "pipeline: so many ranks, with a stage each, or V stages"},
	{"micro-batches", 0, "M", AT(shape.micro_batches), 1, PIPELINE_MAX,
	 .help = "pipeline: of a step"},
	{"chunks", 0, "V", AT(shape.chunks), 1, PIPELINE_MAX,
	 .help = "pipeline: stages on each rank; stage c * P + r is on rank r (1)"},
	{"times", 0, "F,B,W[,T]", AT(times), .parse = arguments_read_times,
	 .wanted = "three or four numbers such as 1,1,1,0.5",
	 .help = "pipeline: time of a stage's forward, of its gradients of inputs and of\n"
		 "weights, and of a message (1,1,1,0)"},
	{"svg", 0, "FILE", AT(svg), .kind = LINE_TEXT, .wanted = "the name of a file",
	 .help = "pipeline: draws ranks against time"},
	{"effort", 0, "N", AT(effort), 0.001, 10000, .kind = LINE_REAL,
	 .help = "simulate: at most N million steps for a point of a curve; beyond, the cost\n"
		 "formula goes on from the last point (20)"},
	{0},
};

static const char arguments_about[] =
	"show prints the steps of a plan, of all ranks or of one. check says what is wrong with\n"
	"plans: messages that do not match, steps that race for memory or wait for each other\n"
	"for ever; a collective alone means all its algorithms. explain says what every\n"
	"algorithm should take and which one is chosen. simulate runs the plans in virtual time\n"
	"for 2, 4, 8 ... P ranks. These are models of a machine, not measurements. pipeline\n"
	"prints the order in which P ranks do a step by a schedule: gpipe, 1f1b, interleaved or\n"
	"zero_bubble.\n"
	"\n"
	"SIZE is that of the call as the API counts it: of the vector in all_reduce, reduce and\n"
	"broadcast, of one rank's block elsewhere. K, M and G are powers of 1,024.";

static const struct line_table arguments_line = {
	.options = arguments_options,
	.operands = "",
	.unwritten = 1,
	.usage = "usage: tutti-plan show COLLECTIVE ALGORITHM RANKS [--rank R] [--root R] [--nodes "
		 "N]\n"
		 "                  [--in-place] [--staged] [--scaled]\n"
		 "       tutti-plan check COLLECTIVE ALGORITHM RANKS[-RANKS][,...] [--root R] "
		 "[--nodes N]\n"
		 "       tutti-plan check all [RANKS[-RANKS][,...]]\n"
		 "       tutti-plan explain COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
		 "                  [--dtype TYPE] [--op OP] [--deterministic]\n"
		 "       tutti-plan simulate COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
		 "                  [--effort N]\n"
		 "       tutti-plan pipeline SCHEDULE --stages P --micro-batches M [--chunks V]\n"
		 "                  [--times F,B,W[,T]] [--svg FILE]",
	.about = arguments_about,
};

/* The words that are no options: verb, collective, algorithm, sizes; and what fits together
 * with what. Their functions return -1, or the exit code after a message. */

static int arguments_find_verb(struct arguments *a, const char *word)
{
	static const char *const verbs[] = {"show",     "check",    "explain",
					    "simulate", "pipeline", NULL};
	int i = line_find(verbs, word);

	if (i < 0)
		return line_wrong("'%s' is not one of show, check, explain, simulate and pipeline.",
				  word);
	a->verb = (enum verb)i;
	return -1;
}

static int arguments_find_collective(struct arguments *a, const char *word)
{
	for (int c = 0; c < COLL_PATTERNS; c++)
		if (strcmp(collective_name((enum collective)c), word) == 0)
			a->collective = (enum collective)c;
	if (a->collective != COLL_COUNT || (a->verb == VERB_CHECK && strcmp(word, "all") == 0))
		return -1;
	return line_wrong(
		"'%s' is no collective; there are all_reduce, all_gather, reduce_scatter, "
		"broadcast, barrier, reduce, gather, scatter and all_to_all.",
		word);
}

static int arguments_find_algorithm(struct arguments *a, const char *word)
{
	char all[256] = "";

	a->algorithm = algorithm_find(a->collective, word);
	if (a->algorithm && a->algorithm->build)
		return -1;
	if (a->algorithm)
		return line_wrong("%s of %s has no plan: ranks load and store each other's memory.",
				  word, collective_name(a->collective));
	for (int i = 0; algorithm_at(i); i++)
		if (algorithm_at(i)->collective == a->collective && algorithm_at(i)->build)
			snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
				 all[0] ? ", " : "", algorithm_at(i)->name);
	return line_wrong("'%s' is no algorithm of %s; there are %s.", word,
			  collective_name(a->collective), all);
}

static int arguments_find_schedule(struct arguments *a, int n, char **words)
{
	char why[SCHEDULE_WHY_BYTES];
	const char *name;

	if (n < 2)
		return line_wrong("pipeline needs a schedule: gpipe, 1f1b, interleaved or "
				  "zero_bubble.");
	for (int s = 0; (name = schedule_name((tutti_schedule)s)); s++)
		if (strcmp(name, words[1]) == 0)
			break;
		else
			a->shape.schedule = (tutti_schedule)(s + 1);
	if (!name)
		return line_wrong("'%s' is no schedule; there are gpipe, 1f1b, interleaved and "
				  "zero_bubble.",
				  words[1]);
	if (n > 2)
		return line_wrong("'%s' is one word too many.", words[2]);
	if (!a->shape.ranks || !a->shape.micro_batches)
		return line_wrong("--stages P says how many ranks there are, --micro-batches M "
				  "what a step has.");
	if (!schedule_fits(&a->shape, why))
		return line_wrong("This cannot be: %s.", why);
	if ((double)schedule_stages(&a->shape) * a->shape.micro_batches > PIPELINE_TASKS_MAX)
		return line_wrong("A step has %d stages of %d micro-batches, but at most %d in all "
				  "are printed.",
				  schedule_stages(&a->shape), a->shape.micro_batches,
				  PIPELINE_TASKS_MAX);
	return -1;
}

static int arguments_find_words(struct arguments *a, int n, char **words)
{
	bool has_size = a->verb == VERB_EXPLAIN || a->verb == VERB_SIMULATE;
	int code, at = 2;

	if (n < 2)
		return line_wrong("%s what? A collective is missing.", words[0]);
	if ((code = arguments_find_collective(a, words[1])) >= 0)
		return code;
	if (has_size) {
		if (n < 3)
			return line_wrong("A size such as 8, 64K or 1M is missing.");
		if (!number_read_bytes(words[at++], &a->bytes))
			return line_wrong("'%s' is not a size such as 8, 64K or 1M.", words[2]);
	} else if (a->collective != COLL_COUNT && n > at &&
		   (words[at][0] < '0' || words[at][0] > '9')) {
		if ((code = arguments_find_algorithm(a, words[at++])) >= 0)
			return code;
	}
	if (!has_size && n > at && !arguments_read_ranks(words[at++], &a->ranks))
		return line_wrong("'%s' is not a number of ranks from 1 to %d%s.", words[at - 1],
				  RANKS_MAX,
				  a->verb == VERB_CHECK ? ", nor several like 1-64,100" : "");
	return n > at ? line_wrong("'%s' is one word too many.", words[at]) : -1;
}

static int arguments_check_counts(const struct arguments *a)
{
	int ranks = a->ranks.count ? a->ranks.of[0].first : 0;

	for (int i = 0; i < a->ranks.count && a->verb == VERB_CHECK; i++)
		if (a->ranks.of[i].last > CHECK_RANKS_MAX)
			return line_wrong("check takes at most %d ranks.", CHECK_RANKS_MAX);
	if (a->verb == VERB_CHECK)
		return a->nodes && a->ranks.count != 1
			       ? line_wrong("--nodes needs one number of ranks.")
			       : -1;
	if (a->ranks.count != 1 || a->ranks.of[0].first != a->ranks.of[0].last)
		return line_wrong(a->verb == VERB_SHOW
					  ? "show needs a number of ranks."
					  : "--ranks P says how many ranks there are.");
	if (a->rank >= ranks)
		return line_wrong("Rank %d is not one of %d ranks, which count from 0.", a->rank,
				  ranks);
	return a->verb == VERB_SHOW && !a->algorithm ? line_wrong("show needs an algorithm.") : -1;
}

static int arguments_check(const struct arguments *a)
{
	int code = arguments_check_counts(a), ranks = a->ranks.count ? a->ranks.of[0].first : 0;

	if (code >= 0)
		return code;
	if (ranks && a->root >= ranks)
		return line_wrong("Root %d is not one of %d ranks, which count from 0.", a->root,
				  ranks);
	if (a->nodes && ranks % a->nodes)
		return line_wrong("%d ranks cannot lie on %d nodes with equally many on each.",
				  ranks, a->nodes);
	if (!op_fits(a->op, a->dtype))
		return line_wrong("%s is not for elements of %s.", op_name(a->op),
				  dtype_name(a->dtype));
	return -1;
}

/* The machine: what was not given is as it was measured, or as the library assumes. */

/* The last line of a file that TUTTI_LINKS named. */
static bool arguments_read_links(const char *path, struct links *links)
{
	char key[256] = "", line[512], word[256];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "%255s", word) == 1)
			snprintf(key, sizeof key, "%s", word);
	if (file)
		fclose(file);
	return key[0] && links_read(links, path, key);
}

static void arguments_default(double *given, double known)
{
	if (*given < 0)
		*given = known;
}

/* Beside other load a message of many may have been measured to take longer than one alone. */
static double arguments_overhead(const struct link_speed *measured)
{
	return measured->overhead < measured->alpha ? measured->overhead : measured->alpha;
}

static int arguments_complete(struct arguments *a)
{
	struct machine *m = &a->machine;
	struct links known = links_default();

	if (a->links && !arguments_read_links(a->links, &known))
		return line_wrong("'%s' has no measured links; TUTTI_LINKS makes such a file.",
				  a->links);
	/* A job on one node has measured the links inside of it. */
	if (a->links && a->nodes <= 1)
		known.link[LINK_NET] = known.link[LINK_LOCAL];
	for (int l = 0; l < LINKS; l++) {
		struct link_speed *s = &m->links.link[l];
		arguments_default(&s->overhead,
				  s->alpha < 0 ? arguments_overhead(&known.link[l]) : s->alpha);
		arguments_default(&s->alpha, known.link[l].alpha);
		arguments_default(&s->beta, known.link[l].beta);
		if (s->overhead > s->alpha)
			return line_wrong("The overhead is a part of alpha; it cannot be more.");
	}
	arguments_default(&m->links.gamma, known.gamma);
	m->links.cores = known.cores;
	if (a->nodes <= 1)
		m->links.link[LINK_LOCAL] = m->links.link[LINK_NET];
	arguments_default(&m->node_beta, m->links.link[LINK_NET].beta);
	m->element = dtype_bytes(a->dtype);
	return -1;
}

static void arguments_print_link(const struct link_speed *l)
{
	printf("alpha %s (overhead %s), beta %s", units_seconds_in_words(l->alpha).text,
	       units_seconds_in_words(l->overhead).text, units_rate_in_words(l->beta).text);
}

void arguments_print_machine(const struct arguments *a)
{
	const struct machine *m = &a->machine;

	printf("%s", a->nodes > 1 ? "between nodes: " : "");
	arguments_print_link(&m->links.link[LINK_NET]);
	printf("; gamma %s\n", units_rate_in_words(m->links.gamma).text);
	if (a->nodes <= 1)
		return;
	printf("a node, of %d ranks: %s; inside: ", a->ranks.of[0].first / a->nodes,
	       units_rate_in_words(m->node_beta).text);
	arguments_print_link(&m->links.link[LINK_LOCAL]);
	puts("");
}

int arguments_parse(struct arguments *a, int argc, char **argv)
{
	int code;

	*a = (struct arguments){.collective = COLL_COUNT,
				.rank = -1,
				.root = -1,
				.effort = 20,
				.shape = {.chunks = 1},
				.times = {1, 1, 1, 0},
				.machine = {.links = {{{-1, -1, -1}, {-1, -1, -1}}, -1},
					    .node_beta = -1,
					    .slice_bytes = 262144,
					    .scratch_bytes = 4194304}};
	for (int i = 0; dtype_bytes((tutti_dtype)i); i++)
		dtypes[i] = dtype_name((tutti_dtype)i);
	for (int i = 0; i < OPS_BUILT_IN; i++)
		ops[i] = op_name((tutti_op)i);
	if ((code = line_parse(&arguments_line, a, argc, argv)) >= 0)
		return code;
	if (optind == argc)
		return line_wrong("There is nothing to do.");
	if ((code = arguments_find_verb(a, argv[optind])) >= 0)
		return code;
	if (a->verb == VERB_PIPELINE)
		return arguments_find_schedule(a, argc - optind, argv + optind);
	if ((code = arguments_find_words(a, argc - optind, argv + optind)) < 0 &&
	    (code = arguments_check(a)) < 0)
		code = arguments_complete(a);
	return code;
}

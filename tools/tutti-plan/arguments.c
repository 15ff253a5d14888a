#include "arguments.h"

#include "units.h"

#include "memory/dtype.h"
#include "memory/ops.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: tutti-plan show COLLECTIVE ALGORITHM RANKS [--rank R] [--root R] [--nodes N]\n"
	"                  [--in-place] [--staged] [--scaled]\n"
	"       tutti-plan check COLLECTIVE ALGORITHM RANKS[-RANKS][,...] [--root R] [--nodes N]\n"
	"                  [--damage WHAT:RANK:STEP[:WHICH]]\n"
	"       tutti-plan check all [RANKS[-RANKS][,...]]\n"
	"       tutti-plan explain COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
	"                  [--dtype TYPE] [--op OP] [--deterministic]\n"
	"       tutti-plan simulate COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
	"                  [--svg FILE] [--effort N]\n"
	"\n"
	"show prints the steps of a plan, of all ranks or of one. check executes plans without "
	"data\n"
	"and says what is wrong with them: messages that do not match, steps that wait for each\n"
	"other, contributions that are missing, doubled or misplaced; a collective alone means "
	"all\n"
	"its algorithms. explain says what every algorithm should take and which one is chosen.\n"
	"simulate runs the plans in virtual time for 2, 4, 8 ... P ranks. These are models of a\n"
	"machine, not measurements.\n"
	"\n"
	"SIZE is that of the call as the API counts it: of the vector in all_reduce, reduce and\n"
	"broadcast, of one rank's block elsewhere. K, M and G are powers of 1,024.\n"
	"\n"
	"  --rank R            show: this rank only\n"
	"  --root R            of collectives that have one (show, simulate: 0; check: several)\n"
	"  --nodes N           the ranks lie on N nodes, equally many on each (simulate: at P\n"
	"                      ranks; with fewer ranks there are fewer nodes as large)\n"
	"  --in-place --staged --scaled\n"
	"                      show: the plan for such buffers, or for a scaled sum\n"
	"  --damage WHAT:RANK:STEP[:WHICH]\n"
	"                      check: drop, shift, double or edge; to see what check says of it\n"
	"  --links FILE        the links that were measured last into a file that TUTTI_LINKS "
	"names;\n"
	"                      else what the library assumes, in brackets\n"
	"  --alpha TIME        what a message takes, whatever its size (20us)\n"
	"  --overhead TIME     for how much of alpha it occupies its ports (all, or 4us)\n"
	"  --beta RATE         how fast its bytes go (1.2GB/s)\n"
	"  --node-beta RATE    how fast the bytes of all ranks of a node leave and enter it, "
	"together\n"
	"                      (as --beta)\n"
	"  --local-alpha, --local-overhead, --local-beta\n"
	"                      inside a node (1us, 300ns, 4GB/s), if --nodes is given\n"
	"  --gamma RATE        how fast a rank adds (8GB/s)\n"
	"  --slice SIZE        TUTTI_SLICE_BYTES (256K)\n"
	"  --scratch SIZE      TUTTI_SCRATCH_BYTES (4M)\n"
	"  --dtype TYPE --op OP --deterministic\n"
	"                      explain: the call (f32, sum) and the communicator\n"
	"  --svg FILE          simulate: draws time against ranks\n"
	"  --effort N          simulate: at most N million steps for a point of a curve; beyond,\n"
	"                      the cost formula goes on from the last point (20)\n"
	"  --help\n";

/* Options without a letter. */
enum {
	RANK = 256,
	RANKS,
	ROOT,
	NODES,
	IN_PLACE,
	STAGED,
	SCALED,
	DAMAGE,
	ALPHA,
	BETA,
	OVERHEAD,
	NODE_BETA,
	LOCAL_ALPHA,
	LOCAL_BETA,
	LOCAL_OVERHEAD,
	GAMMA,
	SLICE,
	SCRATCH,
	LINKS_FILE,
	DTYPE,
	OP,
	DETERMINISTIC,
	SVG,
	EFFORT,
};

static const struct option names[] = {
	{"rank", required_argument, NULL, RANK},
	{"ranks", required_argument, NULL, RANKS},
	{"root", required_argument, NULL, ROOT},
	{"nodes", required_argument, NULL, NODES},
	{"in-place", no_argument, NULL, IN_PLACE},
	{"staged", no_argument, NULL, STAGED},
	{"scaled", no_argument, NULL, SCALED},
	{"damage", required_argument, NULL, DAMAGE},
	{"alpha", required_argument, NULL, ALPHA},
	{"beta", required_argument, NULL, BETA},
	{"overhead", required_argument, NULL, OVERHEAD},
	{"node-beta", required_argument, NULL, NODE_BETA},
	{"local-alpha", required_argument, NULL, LOCAL_ALPHA},
	{"local-beta", required_argument, NULL, LOCAL_BETA},
	{"local-overhead", required_argument, NULL, LOCAL_OVERHEAD},
	{"gamma", required_argument, NULL, GAMMA},
	{"slice", required_argument, NULL, SLICE},
	{"scratch", required_argument, NULL, SCRATCH},
	{"links", required_argument, NULL, LINKS_FILE},
	{"dtype", required_argument, NULL, DTYPE},
	{"op", required_argument, NULL, OP},
	{"deterministic", no_argument, NULL, DETERMINISTIC},
	{"svg", required_argument, NULL, SVG},
	{"effort", required_argument, NULL, EFFORT},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
	va_list args;

	fputs("tutti-plan: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs(" tutti-plan --help says more.\n", stderr);
	return 2;
}

static bool parse_int(const char *text, int min, int max, int *value)
{
	char *end;
	long n = strtol(text, &end, 10);
	if (end == text || *end || n < min || n > max)
		return false;
	*value = (int)n;
	return true;
}

static bool parse_number(const char *text, double min, double max, double *value)
{
	char *end;
	double x = strtod(text, &end);
	if (end == text || *end || !(x >= min && x <= max))
		return false;
	*value = x;
	return true;
}

/* 8, or 1-64,100 */
static bool parse_ranges(const char *text, struct arguments *a)
{
	while (a->range_count < RANGES_MAX) {
		struct rank_range *r = &a->ranges[a->range_count];
		char *end;
		long first = strtol(text, &end, 10), last = first;
		if (end == text)
			return false;
		if (*end == '-') {
			text = end + 1;
			last = strtol(text, &end, 10);
			if (end == text)
				return false;
		}
		if (first < 1 || last < first || last > RANKS_MAX)
			return false;
		*r = (struct rank_range){(int)first, (int)last};
		a->range_count++;
		if (*end == '\0')
			return true;
		if (*end != ',')
			return false;
		text = end + 1;
	}
	return false;
}

static bool parse_dtype(const char *text, tutti_dtype *dtype)
{
	for (int d = 0; dtype_bytes((tutti_dtype)d); d++)
		if (strcmp(dtype_name((tutti_dtype)d), text) == 0) {
			*dtype = (tutti_dtype)d;
			return true;
		}
	return false;
}

static bool parse_op(const char *text, tutti_op *op)
{
	for (int o = TUTTI_SUM; o <= TUTTI_BXOR; o++)
		if (strcmp(op_name((tutti_op)o), text) == 0) {
			*op = (tutti_op)o;
			return true;
		}
	return false;
}

static bool parse_machine(struct machine *m, int option, const char *value)
{
	struct link_speed *net = &m->links.link[LINK_NET], *local = &m->links.link[LINK_LOCAL];
	switch (option) {
	case ALPHA:
		return units_seconds(value, &net->alpha);
	case BETA:
		return units_rate(value, &net->beta);
	case OVERHEAD:
		return units_seconds(value, &net->overhead);
	case NODE_BETA:
		return units_rate(value, &m->node_beta);
	case LOCAL_ALPHA:
		return units_seconds(value, &local->alpha);
	case LOCAL_BETA:
		return units_rate(value, &local->beta);
	case LOCAL_OVERHEAD:
		return units_seconds(value, &local->overhead);
	case GAMMA:
		return units_rate(value, &m->links.gamma);
	case SLICE:
		return units_bytes(value, &m->slice_bytes) && m->slice_bytes >= 64;
	case SCRATCH:
		return units_bytes(value, &m->scratch_bytes) && m->scratch_bytes >= 65536;
	default:
		return false;
	}
}

static bool parse_option(struct arguments *a, int option, const char *value)
{
	switch (option) {
	case RANK:
		return parse_int(value, 0, RANKS_MAX - 1, &a->rank);
	case RANKS:
		return a->range_count == 0 && parse_ranges(value, a);
	case ROOT:
		return parse_int(value, 0, RANKS_MAX - 1, &a->root);
	case NODES:
		return parse_int(value, 1, RANKS_MAX, &a->nodes);
	case IN_PLACE:
		return a->in_place = true;
	case STAGED:
		return a->options.staged = true;
	case SCALED:
		return a->options.scaled = true;
	case DAMAGE:
		return a->has_damage = damage_parse(value, &a->damage);
	case LINKS_FILE:
		a->links = value;
		return *value != '\0';
	case DTYPE:
		return parse_dtype(value, &a->dtype);
	case OP:
		return parse_op(value, &a->op);
	case DETERMINISTIC:
		return a->deterministic = true;
	case SVG:
		a->svg = value;
		return *value != '\0';
	case EFFORT:
		return parse_number(value, 0.001, 10000, &a->effort);
	default:
		return parse_machine(&a->machine, option, value);
	}
}

static const char *name_of(int option)
{
	for (int i = 0; names[i].name; i++)
		if (names[i].val == option)
			return names[i].name;
	return "?";
}

static int find_verb(struct arguments *a, const char *word)
{
	static const char *const verbs[] = {"show", "check", "explain", "simulate"};
	for (int i = 0; i < 4; i++)
		if (strcmp(verbs[i], word) == 0) {
			a->verb = (enum verb)i;
			return -1;
		}
	return wrong("'%s' is not one of show, check, explain and simulate.", word);
}

static int find_collective(struct arguments *a, const char *word)
{
	for (int c = 0; c < COLL_PATTERNS; c++)
		if (strcmp(collective_name((enum collective)c), word) == 0)
			a->collective = (enum collective)c;
	if (a->collective != COLL_COUNT || (a->verb == VERB_CHECK && strcmp(word, "all") == 0))
		return -1;
	return wrong("'%s' is no collective; there are all_reduce, all_gather, reduce_scatter, "
		     "broadcast, barrier, reduce, gather, scatter and all_to_all.",
		     word);
}

static int find_algorithm(struct arguments *a, const char *word)
{
	char all[256] = "";

	a->algorithm = algorithm_find(a->collective, word);
	if (a->algorithm && a->algorithm->build)
		return -1;
	if (a->algorithm)
		return wrong("%s of %s has no plan: ranks load and store each other's memory.",
			     word, collective_name(a->collective));
	for (int i = 0; algorithm_at(i); i++)
		if (algorithm_at(i)->collective == a->collective && algorithm_at(i)->build)
			snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
				 all[0] ? ", " : "", algorithm_at(i)->name);
	return wrong("'%s' is no algorithm of %s; there are %s.", word,
		     collective_name(a->collective), all);
}

static int find_ranks(struct arguments *a, const char *word)
{
	if (a->range_count || !parse_ranges(word, a))
		return wrong("'%s' is not a number of ranks from 1 to %d%s.", word, RANKS_MAX,
			     a->verb == VERB_CHECK ? ", nor several like 1-64,100" : "");
	return -1;
}

static int find_words(struct arguments *a, int n, char **words)
{
	int code, at = 2;

	if (n < 1)
		return wrong("There is nothing to do.");
	if ((code = find_verb(a, words[0])) >= 0)
		return code;
	if (n < 2)
		return wrong("%s what? A collective is missing.", words[0]);
	if ((code = find_collective(a, words[1])) >= 0)
		return code;
	if (a->verb == VERB_EXPLAIN || a->verb == VERB_SIMULATE) {
		if (n < 3)
			return wrong("A size such as 8, 64K or 1M is missing.");
		if (!units_bytes(words[at], &a->bytes))
			return wrong("'%s' is not a size such as 8, 64K or 1M.", words[at]);
		at++;
	} else if (a->collective != COLL_COUNT && n > at &&
		   (words[at][0] < '0' || words[at][0] > '9')) {
		if ((code = find_algorithm(a, words[at++])) >= 0)
			return code;
	}
	if (a->verb != VERB_EXPLAIN && a->verb != VERB_SIMULATE && n > at &&
	    (code = find_ranks(a, words[at++])) >= 0)
		return code;
	return n > at ? wrong("'%s' is one word too many.", words[at]) : -1;
}

static int check_counts(const struct arguments *a)
{
	int ranks = a->range_count ? a->ranges[0].first : 0;

	for (int i = 0; i < a->range_count && a->verb == VERB_CHECK; i++)
		if (a->ranges[i].last > CHECK_RANKS_MAX)
			return wrong("check takes at most %d ranks.", CHECK_RANKS_MAX);
	if (a->verb == VERB_CHECK)
		return a->nodes && a->range_count != 1 ? wrong("--nodes needs one number of ranks.")
						       : -1;
	if (a->range_count != 1 || a->ranges[0].first != a->ranges[0].last)
		return wrong(a->verb == VERB_SHOW ? "show needs a number of ranks."
						  : "--ranks P says how many ranks there are.");
	if (a->rank >= ranks)
		return wrong("Rank %d is not one of %d ranks, which count from 0.", a->rank, ranks);
	return a->verb == VERB_SHOW && !a->algorithm ? wrong("show needs an algorithm.") : -1;
}

static int check_together(const struct arguments *a)
{
	int code = check_counts(a), ranks = a->range_count ? a->ranges[0].first : 0;

	if (code >= 0)
		return code;
	if (ranks && a->root >= ranks)
		return wrong("Root %d is not one of %d ranks, which count from 0.", a->root, ranks);
	if (a->nodes && ranks % a->nodes)
		return wrong("%d ranks cannot lie on %d nodes with equally many on each.", ranks,
			     a->nodes);
	if (a->has_damage && !a->algorithm)
		return wrong("--damage needs one algorithm.");
	if (!op_fits(a->op, a->dtype))
		return wrong("%s is not for elements of %s.", op_name(a->op), dtype_name(a->dtype));
	return -1;
}

/* The last line of a file that TUTTI_LINKS named. */
static bool read_links(const char *path, struct links *links)
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

static void complete(double *given, double known)
{
	if (*given < 0)
		*given = known;
}

/* What was not given is as it was measured, or as the library assumes where nothing was; an alpha
 * without an overhead is all overhead. Without nodes there is one kind of link. */
static int complete_machine(struct arguments *a)
{
	struct machine *m = &a->machine;
	struct links known = links_default();

	if (a->links && !read_links(a->links, &known))
		return wrong("'%s' has no measured links; TUTTI_LINKS makes such a file.",
			     a->links);
	for (int l = 0; l < LINKS; l++) {
		struct link_speed *s = &m->links.link[l];
		complete(&s->overhead, s->alpha < 0 ? known.link[l].overhead : s->alpha);
		complete(&s->alpha, known.link[l].alpha);
		complete(&s->beta, known.link[l].beta);
		if (s->overhead > s->alpha)
			return wrong("The overhead is a part of alpha; it cannot be more.");
	}
	complete(&m->links.gamma, known.gamma);
	m->links.cores = known.cores;
	if (a->nodes <= 1)
		m->links.link[LINK_LOCAL] = m->links.link[LINK_NET];
	complete(&m->node_beta, m->links.link[LINK_NET].beta);
	m->element = dtype_bytes(a->dtype);
	return -1;
}

int arguments_parse(struct arguments *a, int argc, char **argv)
{
	int option, code;

	*a = (struct arguments){.collective = COLL_COUNT,
				.rank = -1,
				.root = -1,
				.effort = 20,
				.machine = {.links = {{{-1, -1, -1}, {-1, -1, -1}}, -1},
					    .node_beta = -1,
					    .slice_bytes = 262144,
					    .scratch_bytes = 4194304}};
	opterr = 0;
	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (option == '?')
			return wrong("'%s' is no option, or lacks its value.", argv[optind - 1]);
		if (!parse_option(a, option, optarg))
			return wrong("'%s' is not a value for --%s.", optarg ? optarg : "",
				     name_of(option));
	}
	if ((code = find_words(a, argc - optind, argv + optind)) >= 0 ||
	    (code = check_together(a)) >= 0)
		return code;
	return complete_machine(a);
}

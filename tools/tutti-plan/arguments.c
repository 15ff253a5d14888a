/* The command line of tutti-plan: what is asked, and the machine that the options describe. */
#include "arguments.h"

#include "units.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "tools/output.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX          65536
#define CHECK_RANKS_MAX    1024
#define PIPELINE_MAX       4096 /* ranks, micro-batches, chunks */
#define PIPELINE_TASKS_MAX 1000000

static const char arguments_help[] =
	"usage: tutti-plan show COLLECTIVE ALGORITHM RANKS [--rank R] [--root R] [--nodes N]\n"
	"                  [--in-place] [--staged] [--scaled]\n"
	"       tutti-plan check COLLECTIVE ALGORITHM RANKS[-RANKS][,...] [--root R] [--nodes N]\n"
	"       tutti-plan check all [RANKS[-RANKS][,...]]\n"
	"       tutti-plan explain COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
	"                  [--dtype TYPE] [--op OP] [--deterministic]\n"
	"       tutti-plan simulate COLLECTIVE SIZE --ranks P [--nodes N] [the machine]\n"
	"                  [--effort N]\n"
	"       tutti-plan pipeline SCHEDULE --stages P --micro-batches M [--chunks V]\n"
	"                  [--times F,B,W[,T]] [--svg FILE]\n"
	"\n"
	"show prints the steps of a plan, of all ranks or of one. check says what is wrong with\n"
	"plans: messages that do not match, steps that race for memory or wait for each other\n"
	"for ever; a collective alone means all its algorithms. explain says what every algorithm\n"
	"should take and which one is chosen. simulate runs the plans in virtual time for 2, 4, 8\n"
	"... P ranks. These are models of a machine, not measurements. pipeline prints the order "
	"in\n"
	"which P ranks do a step by a schedule: gpipe, 1f1b, interleaved or zero_bubble.\n"
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
	"  --links FILE        the links measured last into a file that TUTTI_LINKS names; else\n"
	"                      what the library assumes, in brackets\n"
	"  --alpha TIME        what a message takes, whatever its size (20us)\n"
	"  --overhead TIME     for how much of alpha it occupies its ports (all, or 4us)\n"
	"  --beta RATE         how fast its bytes go (1.2GB/s)\n"
	"  --node-beta RATE    how fast the bytes of all ranks of a node leave and enter it,\n"
	"                      together (as --beta)\n"
	"  --local-alpha, --local-overhead, --local-beta\n"
	"                      inside a node (1us, 300ns, 4GB/s), if --nodes is given\n"
	"  --gamma RATE        how fast a rank adds (8GB/s)\n"
	"  --slice SIZE        TUTTI_SLICE_BYTES (256K)\n"
	"  --scratch SIZE      TUTTI_SCRATCH_BYTES (4M)\n"
	"  --dtype TYPE --op OP --deterministic\n"
	"                      explain: the call (f32, sum) and the communicator\n"
	"  --stages P          pipeline: so many ranks, with a stage each, or V stages\n"
	"  --micro-batches M   pipeline: of a step\n"
	"  --chunks V          pipeline: stages on each rank; stage c * P + r is on rank r (1)\n"
	"  --times F,B,W[,T]   pipeline: time of a stage's forward, of its gradients of inputs "
	"and\n"
	"                      of weights, and of a message (1,1,1,0)\n"
	"  --svg FILE          pipeline: draws ranks against time\n"
	"  --effort N          simulate: at most N million steps for a point of a curve; beyond,\n"
	"                      the cost formula goes on from the last point (20)\n"
	"  --help, --version\n";

/* How an option's value is read. */
enum kind { FLAG, WHOLE, NUMBER, RANKS, BYTES, SECONDS, RATE, DTYPE, OP, TIMES, TEXT };

#define AT(member)    offsetof(struct arguments, member)
#define NET(member)   AT(machine.links.link[LINK_NET].member)
#define LOCAL(member) AT(machine.links.link[LINK_LOCAL].member)

static const struct parameter {
	const char *name;
	enum kind kind;
	size_t at;          /* where the value goes */
	double least, most; /* of numbers and bytes */
} parameters[] = {
	{"rank", WHOLE, AT(rank), 0, RANKS_MAX - 1},
	{"ranks", RANKS, AT(ranks), 0, 0},
	{"root", WHOLE, AT(root), 0, RANKS_MAX - 1},
	{"nodes", WHOLE, AT(nodes), 1, RANKS_MAX},
	{"in-place", FLAG, AT(in_place), 0, 0},
	{"staged", FLAG, AT(options.staged), 0, 0},
	{"scaled", FLAG, AT(options.scaled), 0, 0},
	{"alpha", SECONDS, NET(alpha), 0, 0},
	{"beta", RATE, NET(beta), 0, 0},
	{"overhead", SECONDS, NET(overhead), 0, 0},
	{"node-beta", RATE, AT(machine.node_beta), 0, 0},
	{"local-alpha", SECONDS, LOCAL(alpha), 0, 0},
	{"local-beta", RATE, LOCAL(beta), 0, 0},
	{"local-overhead", SECONDS, LOCAL(overhead), 0, 0},
	{"gamma", RATE, AT(machine.links.gamma), 0, 0},
	{"slice", BYTES, AT(machine.slice_bytes), 64, 0},
	{"scratch", BYTES, AT(machine.scratch_bytes), 65536, 0},
	{"links", TEXT, AT(links), 0, 0},
	{"dtype", DTYPE, AT(dtype), 0, 0},
	{"op", OP, AT(op), 0, 0},
	{"deterministic", FLAG, AT(deterministic), 0, 0},
	{"svg", TEXT, AT(svg), 0, 0},
	{"stages", WHOLE, AT(shape.ranks), 1, PIPELINE_MAX},
	{"micro-batches", WHOLE, AT(shape.micro_batches), 1, PIPELINE_MAX},
	{"chunks", WHOLE, AT(shape.chunks), 1, PIPELINE_MAX},
	{"times", TIMES, AT(times), 0, 0},
	{"effort", NUMBER, AT(effort), 0.001, 10000},
};
#define PARAMETERS ((int)(sizeof parameters / sizeof *parameters))

/* The i-th dtype or op; NULL: there are no more. */
static const char *arguments_name(enum kind kind, int i)
{
	if (kind == DTYPE)
		return dtype_bytes((tutti_dtype)i) ? dtype_name((tutti_dtype)i) : NULL;
	return i < OPS_BUILT_IN ? op_name((tutti_op)i) : NULL;
}

static bool arguments_read_name(enum kind kind, const char *text, int *to)
{
	const char *name;

	for (*to = 0; (name = arguments_name(kind, *to)); ++*to)
		if (strcmp(name, text) == 0)
			return true;
	return false;
}

static bool arguments_read_number(const char *text, double least, double most, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end != text && !*end && *value >= least && *value <= most;
}

static bool arguments_read_whole(const struct parameter *p, const char *text, int *to)
{
	double value;

	if (strspn(text, "0123456789") != strlen(text) ||
	    !arguments_read_number(text, p->least, p->most, &value))
		return false;
	*to = (int)value;
	return true;
}

/* "1,1,1" or "1,1,1,0.5". */
static bool arguments_read_times(const char *text, struct action_times *times)
{
	double *const to[] = {&times->forward, &times->inputs, &times->weights, &times->transfer};
	char *end;

	for (int i = 0; i < 4; i++, text = end + 1) {
		*to[i] = strtod(text, &end);
		if (end == text || !(*to[i] >= 0 && *to[i] <= 1e6) || (*end && *end != ','))
			return false;
		if (!*end)
			return i >= 2 && times->forward + times->inputs + times->weights > 0;
	}
	return false;
}

/* "8", or "1-64,100". */
static bool arguments_read_ranks(const char *text, struct rank_ranges *ranks)
{
	if (ranks->count)
		return false;
	while (ranks->count < RANGES_MAX) {
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
		ranks->of[ranks->count++] = (struct rank_range){(int)first, (int)last};
		if (*end == '\0')
			return true;
		if (*end != ',')
			return false;
		text = end + 1;
	}
	return false;
}

static bool arguments_read(const struct parameter *p, const char *text, void *to)
{
	switch (p->kind) {
	case FLAG:
		return *(bool *)to = true;
	case WHOLE:
		return arguments_read_whole(p, text, to);
	case NUMBER:
		return arguments_read_number(text, p->least, p->most, to);
	case RANKS:
		return arguments_read_ranks(text, to);
	case BYTES:
		return units_bytes(text, to) && (double)*(size_t *)to >= p->least;
	case SECONDS:
		return units_seconds(text, to);
	case RATE:
		return units_rate(text, to);
	case DTYPE:
	case OP:
		return arguments_read_name(p->kind, text, to);
	case TIMES:
		return arguments_read_times(text, to);
	case TEXT:
		*(const char **)to = text;
		return *text != '\0';
	}
	return false;
}

static int arguments_refuse(const struct parameter *p, const char *value)
{
	static const char *const words[] = {[RANKS] = "a number of ranks",
					    [SECONDS] = "a time such as 500ns or 20us",
					    [RATE] = "a rate such as 1.2GB/s or 100Gbit/s",
					    [TIMES] = "three or four numbers such as 1,1,1,0.5",
					    [TEXT] = "the name of a file"};
	char text[200];
	const char *takes = words[p->kind], *name;
	size_t n = 0;

	if (p->kind == WHOLE || p->kind == NUMBER)
		snprintf(text, sizeof text, "a number from %g to %g", p->least, p->most);
	else if (p->kind == BYTES)
		snprintf(text, sizeof text, "a size such as 64K or 1M, of %g bytes at least",
			 p->least);
	for (int i = 0; (p->kind == DTYPE || p->kind == OP) && n < sizeof text &&
			(name = arguments_name(p->kind, i));
	     i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", name);
	return usage_error("'%s' is not a value for --%s, which takes %s.", value, p->name,
			   takes ? takes : text);
}

/* The words that are no options: verb, collective, algorithm, sizes; and what fits together
 * with what. Their functions return -1, or the exit code after a message. */

static int arguments_find_verb(struct arguments *a, const char *word)
{
	static const char *const verbs[] = {"show", "check", "explain", "simulate", "pipeline"};
	for (int i = 0; i <= VERB_PIPELINE; i++)
		if (strcmp(verbs[i], word) == 0) {
			a->verb = (enum verb)i;
			return -1;
		}
	return usage_error("'%s' is not one of show, check, explain, simulate and pipeline.", word);
}

static int arguments_find_collective(struct arguments *a, const char *word)
{
	for (int c = 0; c < COLL_PATTERNS; c++)
		if (strcmp(collective_name((enum collective)c), word) == 0)
			a->collective = (enum collective)c;
	if (a->collective != COLL_COUNT || (a->verb == VERB_CHECK && strcmp(word, "all") == 0))
		return -1;
	return usage_error(
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
		return usage_error(
			"%s of %s has no plan: ranks load and store each other's memory.", word,
			collective_name(a->collective));
	for (int i = 0; algorithm_at(i); i++)
		if (algorithm_at(i)->collective == a->collective && algorithm_at(i)->build)
			snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
				 all[0] ? ", " : "", algorithm_at(i)->name);
	return usage_error("'%s' is no algorithm of %s; there are %s.", word,
			   collective_name(a->collective), all);
}

static int arguments_find_schedule(struct arguments *a, int n, char **words)
{
	char why[SCHEDULE_WHY_BYTES];
	const char *name;

	if (n < 2)
		return usage_error("pipeline needs a schedule: gpipe, 1f1b, interleaved or "
				   "zero_bubble.");
	for (int s = 0; (name = schedule_name((tutti_schedule)s)); s++)
		if (strcmp(name, words[1]) == 0)
			break;
		else
			a->shape.schedule = (tutti_schedule)(s + 1);
	if (!name)
		return usage_error("'%s' is no schedule; there are gpipe, 1f1b, interleaved and "
				   "zero_bubble.",
				   words[1]);
	if (n > 2)
		return usage_error("'%s' is one word too many.", words[2]);
	if (!a->shape.ranks || !a->shape.micro_batches)
		return usage_error("--stages P says how many ranks there are, --micro-batches M "
				   "what a step has.");
	if (!schedule_fits(&a->shape, why))
		return usage_error("This cannot be: %s.", why);
	if ((double)schedule_stages(&a->shape) * a->shape.micro_batches > PIPELINE_TASKS_MAX)
		return usage_error(
			"A step has %d stages of %d micro-batches, but at most %d in all "
			"are printed.",
			schedule_stages(&a->shape), a->shape.micro_batches, PIPELINE_TASKS_MAX);
	return -1;
}

static int arguments_find_words(struct arguments *a, int n, char **words)
{
	bool has_size = a->verb == VERB_EXPLAIN || a->verb == VERB_SIMULATE;
	int code, at = 2;

	if (n < 2)
		return usage_error("%s what? A collective is missing.", words[0]);
	if ((code = arguments_find_collective(a, words[1])) >= 0)
		return code;
	if (has_size) {
		if (n < 3)
			return usage_error("A size such as 8, 64K or 1M is missing.");
		if (!units_bytes(words[at++], &a->bytes))
			return usage_error("'%s' is not a size such as 8, 64K or 1M.", words[2]);
	} else if (a->collective != COLL_COUNT && n > at &&
		   (words[at][0] < '0' || words[at][0] > '9')) {
		if ((code = arguments_find_algorithm(a, words[at++])) >= 0)
			return code;
	}
	if (!has_size && n > at && !arguments_read_ranks(words[at++], &a->ranks))
		return usage_error("'%s' is not a number of ranks from 1 to %d%s.", words[at - 1],
				   RANKS_MAX,
				   a->verb == VERB_CHECK ? ", nor several like 1-64,100" : "");
	return n > at ? usage_error("'%s' is one word too many.", words[at]) : -1;
}

static int arguments_check_counts(const struct arguments *a)
{
	int ranks = a->ranks.count ? a->ranks.of[0].first : 0;

	for (int i = 0; i < a->ranks.count && a->verb == VERB_CHECK; i++)
		if (a->ranks.of[i].last > CHECK_RANKS_MAX)
			return usage_error("check takes at most %d ranks.", CHECK_RANKS_MAX);
	if (a->verb == VERB_CHECK)
		return a->nodes && a->ranks.count != 1
			       ? usage_error("--nodes needs one number of ranks.")
			       : -1;
	if (a->ranks.count != 1 || a->ranks.of[0].first != a->ranks.of[0].last)
		return usage_error(a->verb == VERB_SHOW
					   ? "show needs a number of ranks."
					   : "--ranks P says how many ranks there are.");
	if (a->rank >= ranks)
		return usage_error("Rank %d is not one of %d ranks, which count from 0.", a->rank,
				   ranks);
	return a->verb == VERB_SHOW && !a->algorithm ? usage_error("show needs an algorithm.") : -1;
}

static int arguments_check(const struct arguments *a)
{
	int code = arguments_check_counts(a), ranks = a->ranks.count ? a->ranks.of[0].first : 0;

	if (code >= 0)
		return code;
	if (ranks && a->root >= ranks)
		return usage_error("Root %d is not one of %d ranks, which count from 0.", a->root,
				   ranks);
	if (a->nodes && ranks % a->nodes)
		return usage_error("%d ranks cannot lie on %d nodes with equally many on each.",
				   ranks, a->nodes);
	if (!op_fits(a->op, a->dtype))
		return usage_error("%s is not for elements of %s.", op_name(a->op),
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
		return usage_error("'%s' has no measured links; TUTTI_LINKS makes such a file.",
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
			return usage_error("The overhead is a part of alpha; it cannot be more.");
	}
	arguments_default(&m->links.gamma, known.gamma);
	m->links.cores = known.cores;
	if (a->nodes <= 1)
		m->links.link[LINK_LOCAL] = m->links.link[LINK_NET];
	arguments_default(&m->node_beta, m->links.link[LINK_NET].beta);
	m->element = dtype_bytes(a->dtype);
	return -1;
}

static void arguments_link(const struct link_speed *l, char *text, size_t bytes)
{
	char alpha[32], beta[32], overhead[32];
	units_seconds_in_words(l->alpha, alpha, sizeof alpha);
	units_rate_in_words(l->beta, beta, sizeof beta);
	units_seconds_in_words(l->overhead, overhead, sizeof overhead);
	snprintf(text, bytes, "alpha %s (overhead %s), beta %s", alpha, overhead, beta);
}

void arguments_machine(const struct arguments *a, char text[2][200])
{
	const struct machine *m = &a->machine;
	char net[120], local[120], gamma[32], node[32];

	arguments_link(&m->links.link[LINK_NET], net, sizeof net);
	arguments_link(&m->links.link[LINK_LOCAL], local, sizeof local);
	units_rate_in_words(m->links.gamma, gamma, sizeof gamma);
	snprintf(text[0], sizeof text[0], "%s%s; gamma %s", a->nodes > 1 ? "between nodes: " : "",
		 net, gamma);
	text[1][0] = '\0';
	if (a->nodes > 1)
		snprintf(text[1], sizeof text[1], "a node, of %d ranks: %s; inside: %s",
			 a->ranks.of[0].first / a->nodes,
			 units_rate_in_words(m->node_beta, node, sizeof node), local);
}

int arguments_parse(struct arguments *a, int argc, char **argv)
{
	struct option longs[PARAMETERS + 2] = {{"help", no_argument, NULL, 'h'}};
	int option, code;

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
	opterr = 0;
	for (int i = 0; i < PARAMETERS; i++)
		longs[i + 1] = (struct option){parameters[i].name, parameters[i].kind != FLAG, NULL,
					       256 + i};
	while ((option = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		const struct parameter *p = &parameters[option < 256 ? 0 : option - 256];
		if (option == 'h') {
			fputs(arguments_help, stdout);
			return 0;
		}
		if (option == '?')
			return usage_error("'%s' is no option, or lacks its value.",
					   argv[optind - 1]);
		if (!arguments_read(p, optarg, (char *)a + p->at))
			return arguments_refuse(p, optarg);
	}
	if (optind == argc)
		return usage_error("There is nothing to do.");
	if ((code = arguments_find_verb(a, argv[optind])) >= 0)
		return code;
	if (a->verb == VERB_PIPELINE)
		return arguments_find_schedule(a, argc - optind, argv + optind);
	if ((code = arguments_find_words(a, argc - optind, argv + optind)) < 0 &&
	    (code = arguments_check(a)) < 0)
		code = arguments_complete(a);
	return code;
}

/* The words of the command line that are no options: verb, collective, algorithm, sizes; and what
 * fits together with what. */
#include "arguments.h"

#include "units.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "tools/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool arguments_ranges(struct arguments *a, const char *text)
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

static int find_verb(struct arguments *a, const char *word)
{
	static const char *const verbs[] = {"show", "check", "explain", "simulate", "pipeline"};
	for (int i = 0; i <= VERB_PIPELINE; i++)
		if (strcmp(verbs[i], word) == 0) {
			a->verb = (enum verb)i;
			return -1;
		}
	return usage_error("'%s' is not one of show, check, explain, simulate and pipeline.", word);
}

static int find_collective(struct arguments *a, const char *word)
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

static int find_algorithm(struct arguments *a, const char *word)
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

static int words_find_ranks(struct arguments *a, const char *word)
{
	if (a->range_count || !arguments_ranges(a, word))
		return usage_error("'%s' is not a number of ranks from 1 to %d%s.", word, RANKS_MAX,
				   a->verb == VERB_CHECK ? ", nor several like 1-64,100" : "");
	return -1;
}

static int find_schedule(struct arguments *a, int n, char **words)
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

static int words_find_all(struct arguments *a, int n, char **words)
{
	int code, at = 2;

	if (n < 1)
		return usage_error("There is nothing to do.");
	if ((code = find_verb(a, words[0])) >= 0)
		return code;
	if (a->verb == VERB_PIPELINE)
		return find_schedule(a, n, words);
	if (n < 2)
		return usage_error("%s what? A collective is missing.", words[0]);
	if ((code = find_collective(a, words[1])) >= 0)
		return code;
	if (a->verb == VERB_EXPLAIN || a->verb == VERB_SIMULATE) {
		if (n < 3)
			return usage_error("A size such as 8, 64K or 1M is missing.");
		if (!units_bytes(words[at], &a->bytes))
			return usage_error("'%s' is not a size such as 8, 64K or 1M.", words[at]);
		at++;
	} else if (a->collective != COLL_COUNT && n > at &&
		   (words[at][0] < '0' || words[at][0] > '9')) {
		if ((code = find_algorithm(a, words[at++])) >= 0)
			return code;
	}
	if (a->verb != VERB_EXPLAIN && a->verb != VERB_SIMULATE && n > at &&
	    (code = words_find_ranks(a, words[at++])) >= 0)
		return code;
	return n > at ? usage_error("'%s' is one word too many.", words[at]) : -1;
}

static int words_check_counts(const struct arguments *a)
{
	int ranks = a->range_count ? a->ranges[0].first : 0;

	for (int i = 0; i < a->range_count && a->verb == VERB_CHECK; i++)
		if (a->ranges[i].last > CHECK_RANKS_MAX)
			return usage_error("check takes at most %d ranks.", CHECK_RANKS_MAX);
	if (a->verb == VERB_CHECK)
		return a->nodes && a->range_count != 1
			       ? usage_error("--nodes needs one number of ranks.")
			       : -1;
	if (a->range_count != 1 || a->ranges[0].first != a->ranges[0].last)
		return usage_error(a->verb == VERB_SHOW
					   ? "show needs a number of ranks."
					   : "--ranks P says how many ranks there are.");
	if (a->rank >= ranks)
		return usage_error("Rank %d is not one of %d ranks, which count from 0.", a->rank,
				   ranks);
	return a->verb == VERB_SHOW && !a->algorithm ? usage_error("show needs an algorithm.") : -1;
}

static int words_check_together(const struct arguments *a)
{
	int code = words_check_counts(a), ranks = a->range_count ? a->ranges[0].first : 0;

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

int arguments_words(struct arguments *a, int n, char **words)
{
	int code = words_find_all(a, n, words);

	if (code >= 0 || a->verb == VERB_PIPELINE)
		return code;
	return words_check_together(a);
}

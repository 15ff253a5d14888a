/* The choice among the algorithms, and the user's rules for it. */
#include "collectives/select/select.h"

#include "core/memory/dtype.h"
#include "core/status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of algorithms by which one rank holds all ranks' blocks for all. */
#define FEW_RANKS 32

/* Partial sums of narrow floats are rounded on their way. */
static bool select_is_narrow(tutti_dtype dtype)
{
	return dtype_is_float(dtype) && dtype_bytes(dtype) < 4;
}

static bool select_is_fixed(const struct algorithm *a, int size, tutti_dtype dtype)
{
	bool pow2 = (size & (size - 1)) == 0;
	return a->adds == ADDS_ONCE ||
	       (!select_is_narrow(dtype) &&
		(a->adds == ADDS_FIXED || (a->adds == ADDS_FIXED_POW2 && pow2)));
}

/* An average of integers is exact only where all contributions meet in a wider type. */
const char *select_why_not(const struct select *s, const struct algorithm *a,
			   const struct call_args *args)
{
	if (!a->build && !s->has_window)
		return "the ranks do not share memory (or TUTTI_WINDOW=0, or a filter without shm)";
	if ((a->needs & NEEDS_NODES) && !s->nodes)
		return "it needs several nodes of equally many ranks, more than one, numbered node "
		       "by node or in turn";
	if ((a->needs & NEEDS_EQUAL_BLOCKS) && args->counts[SEND_SIDE])
		return "it needs blocks of equal size";
	if ((a->needs & NEEDS_FEW_RANKS) && s->size > FEW_RANKS)
		return "it is for up to 32 ranks, since one holds the blocks of all";
	if (!collective_reduces(a->collective))
		return NULL;
	if (a->build && a->adds == ADDS_ONCE && s->size > PLAN_SOURCES_MAX)
		return "direct exchange reduces at most 1024 contributions at once";
	if (a->adds != ADDS_ONCE && args->op == TUTTI_AVG && !dtype_is_float(args->dtype))
		return "an average of integers needs all contributions at once";
	if (s->deterministic && !select_is_fixed(a, s->size, args->dtype))
		return a->adds == ADDS_FIXED
			       ? "it rounds partial sums of 16- and 8-bit floats, which "
				 "config.deterministic does not admit"
			       : "config.deterministic admits only the fixed association";
	return NULL;
}

/* Bytes of the pieces that run.c cuts a chunk into. */
static double select_slice_of(const struct select *s, const struct algorithm *a, double bytes)
{
	double scratch = s->scratch_bytes ? (double)s->scratch_bytes : 4 << 20;
	double slice = s->slice_bytes ? (double)s->slice_bytes : 256 << 10;
	double chunk = bytes / algorithm_split(a, s->size),
	       room = scratch / algorithm_width(a, s->size, (struct plan_options){0}) / 8;

	slice = slice < room ? slice : room;
	return slice < chunk ? slice : chunk;
}

double select_seconds(const struct select *s, const struct algorithm *a, double bytes)
{
	struct topology place = {s->size, s->num_nodes > 1 ? s->num_nodes : 1};
	struct cost c = a->cost(place);
	return links_seconds(&s->links, place, &c, bytes, select_slice_of(s, a, bytes));
}

/* The cheapest that can serve the call; NULL if there is none. */
static const struct algorithm *select_find_cheapest(const struct select *s,
						    const struct call_args *args, double bytes)
{
	const struct algorithm *best = NULL;
	double least = 0;

	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *a = algorithm_at(i);
		if (a->collective != collective_pattern(args->collective) || !a->cost ||
		    select_why_not(s, a, args))
			continue;
		double seconds = select_seconds(s, a, bytes);
		if (!best || seconds < least) {
			best = a;
			least = seconds;
		}
	}
	return best;
}

void select_prepare(struct select *s, const struct links *links)
{
	s->links = *links;
	for (int c = 0; c < COLL_PATTERNS; c++)
		for (int size = 0; size < SELECT_SIZES; size++) {
			struct call_args args = {.collective = (enum collective)c};
			const struct algorithm *a =
				select_find_cheapest(s, &args, (double)(1ull << size));
			s->cheapest[c][size] = a ? (int8_t)(a - algorithm_at(0)) : -1;
		}
}

/* Sizes between powers of two go with the lower one: all ranks of a call have the same bytes. */
static const struct algorithm *select_cheapest(const struct select *s, const struct call_args *args,
					       size_t bytes)
{
	int size = bytes ? 63 - __builtin_clzll(bytes) : 0, found;

	size = size < SELECT_SIZES ? size : SELECT_SIZES - 1;
	found = s->cheapest[collective_pattern(args->collective)][size];
	if (found >= 0 && !select_why_not(s, algorithm_at(found), args))
		return algorithm_at(found);
	return select_find_cheapest(s, args, (double)(1ull << size));
}

/* TUTTI_ALGO speaks of the caller's calls, not of the all_gather inside of others. */
static const struct algorithm *select_forced(const struct select *s, enum collective collective,
					     size_t bytes)
{
	enum collective pattern = collective_pattern(collective);
	if (collective >= COLL_SPLIT)
		return NULL;
	for (int i = 0; i < s->rules; i++)
		if (s->rule[i].collective == pattern && bytes >= s->rule[i].first &&
		    bytes <= s->rule[i].last)
			return s->rule[i].algorithm;
	return NULL;
}

/* The bytes that costs are of: those of one block, of v-variants the average. */
static size_t select_bytes_of(const struct select *s, const struct call_args *args)
{
	size_t bytes = args->count * dtype_bytes(args->dtype);
	if (!args->counts[SEND_SIDE])
		return bytes;
	return bytes /
	       (size_t)s->size; /* 0 for all_to_allv: ranks do not know each other's counts */
}

/* Found by its name once: every small call asks. */
static const struct algorithm *select_window_of(enum collective pattern)
{
	static const struct algorithm *_Atomic found[COLL_PATTERNS];
	const struct algorithm *a = atomic_load_explicit(&found[pattern], memory_order_relaxed);

	if (__builtin_expect(!a, 0)) {
		a = algorithm_find(pattern, "window");
		atomic_store_explicit(&found[pattern], a, memory_order_relaxed);
	}
	return a;
}

tutti_status select_algorithm(const struct select *s, const struct call_args *args,
			      const struct algorithm **algorithm)
{
	enum collective pattern = collective_pattern(args->collective);
	const struct algorithm *a;
	const char *why;

	size_t bytes = select_bytes_of(s, args);
	*algorithm = a = select_forced(s, args->collective, bytes);
	if (a && (why = select_why_not(s, a, args)))
		return fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGO forces %s for %s, but %s", a->name,
			    collective_name(args->collective), why);
	if (a)
		return TUTTI_OK;
	*algorithm = s->has_window ? select_window_of(pattern) : select_cheapest(s, args, bytes);
	if (*algorithm)
		return TUTTI_OK;
	why = select_why_not(s, algorithm_find(pattern, "direct"), args);
	return fail(TUTTI_ERR_UNSUPPORTED, "no algorithm serves %s on %d ranks: %s",
		    collective_name(args->collective), s->size, why ? why : "there is none");
}

tutti_status select_planned(const struct select *s, const struct call_args *args,
			    const struct algorithm **algorithm)
{
	const struct algorithm *a = select_forced(s, args->collective, select_bytes_of(s, args));
	struct select planned = *s;

	planned.has_window = false;
	if (a && !a->build)
		planned.rules = 0;
	return select_algorithm(&planned, args, algorithm);
}

/* TUTTI_ALGO: the rules by which a user forces algorithms. */

static const char *select_parse_bytes(const char *text, size_t *bytes)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (end == text || *text < '0' || *text > '9')
		return NULL;
	int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (errno || n > SIZE_MAX >> shift)
		return NULL;
	*bytes = (size_t)n << shift;
	return shift ? end + 1 : end;
}

static tutti_status select_parse_list_names(const char *rule, enum collective c)
{
	char all[160] = "";
	for (int i = 0; algorithm_at(i); i++)
		if (algorithm_at(i)->collective == c)
			snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
				 all[0] ? ", " : "", algorithm_at(i)->name);
	return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO: \"%s\" names no algorithm of %s; there are %s",
		    rule, collective_name(c), all);
}

static tutti_status select_parse_range(struct select_rule *r, const char *rule, const char *range)
{
	const char *at = *range == '-' ? range : select_parse_bytes(range, &r->first);
	if (at && !*at)
		r->last = r->first; /* one size */
	else if (at && *at == '-' && at[1])
		at = select_parse_bytes(at + 1, &r->last);
	else if (at == range || (at && *at++ != '-'))
		at = NULL;
	if (!at || *at || r->first > r->last)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_ALGO: the sizes of \"%s\" are not like 64K-1M", rule);
	return TUTTI_OK;
}

/* collective[:first-last]=name */
static tutti_status select_parse_rule(struct select_rule *r, const char *rule)
{
	char text[128];
	snprintf(text, sizeof text, "%s", rule);
	char *name = strchr(text, '='), *range;
	if (!name)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_ALGO: \"%s\" is not like all_reduce:64K-1M=ring", rule);
	*name++ = '\0';
	if ((range = strchr(text, ':')))
		*range++ = '\0';
	*r = (struct select_rule){.collective = COLL_COUNT, .last = SIZE_MAX};
	for (int c = 0; c < COLL_PATTERNS; c++)
		if (strcmp(collective_name((enum collective)c), text) == 0)
			r->collective = (enum collective)c;
	if (r->collective == COLL_COUNT)
		return fail(
			TUTTI_ERR_INVALID,
			"TUTTI_ALGO: \"%s\" is no collective; there are all_reduce, all_gather, "
			"reduce_scatter, broadcast, barrier, reduce, gather, scatter, all_to_all",
			text);
	if (range)
		TRY(select_parse_range(r, rule, range));
	r->algorithm = algorithm_find(r->collective, name);
	return r->algorithm ? TUTTI_OK : select_parse_list_names(rule, r->collective);
}

tutti_status select_parse(struct select *s, const char *text)
{
	char copy[1024];
	s->rules = 0;
	if (!text || !*text)
		return TUTTI_OK;
	if (strlen(text) >= sizeof copy)
		return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO is longer than %zu bytes",
			    sizeof copy - 1);
	memcpy(copy, text, strlen(text) + 1);
	char *rest = copy;
	for (char *rule; (rule = strsep(&rest, ","));) {
		if (s->rules == SELECT_RULES_MAX)
			return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO has more than %d rules",
				    SELECT_RULES_MAX);
		TRY(select_parse_rule(&s->rule[s->rules++], rule));
	}
	return TUTTI_OK;
}

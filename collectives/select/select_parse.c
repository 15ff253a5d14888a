/* TUTTI_ALGO: the rules by which a user forces algorithms. */
#include "collectives/select/select.h"

#include "core/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static tutti_status parse_range(struct select_rule *r, const char *rule, const char *range)
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
static tutti_status parse_rule(struct select_rule *r, const char *rule)
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
		TRY(parse_range(r, rule, range));
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
		TRY(parse_rule(&s->rule[s->rules++], rule));
	}
	return TUTTI_OK;
}

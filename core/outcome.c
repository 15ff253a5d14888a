/* See outcome.h. */
#include "core/outcome.h"

#include <stdio.h>
#include <strings.h>

void outcome_set(struct outcome *o, tutti_status status)
{
	o->status = (int32_t)status;
	snprintf(o->message, sizeof o->message, "%s", status == TUTTI_OK ? "" : last_error());
}

bool outcome_is_secondary(const struct outcome *o)
{
	return o->status == TUTTI_ERR_PEER || o->status == TUTTI_ERR_TIMEOUT ||
	       o->status == TUTTI_ERR_ABORTED;
}

int outcome_cause(const struct outcome *all, size_t stride, int size, const uint8_t *marks,
		  uint8_t mark)
{
	int first = -1;

	for (int r = 0; r < size; r++) {
		const char *at = (const char *)all + (size_t)r * stride;
		const struct outcome *o = (const struct outcome *)(const void *)at;
		if (o->status == TUTTI_OK || (marks && marks[r] != mark))
			continue;
		if (!outcome_is_secondary(o))
			return r;
		if (first < 0)
			first = r;
	}
	return first;
}

tutti_status outcome_fail(const struct outcome *o, int rank, const char *before)
{
	char message[ERROR_BYTES], name[24] = "";

	snprintf(message, sizeof message, "%.*s", ERROR_BYTES - 1, o->message);
	if (!outcome_behind_name(message, rank))
		snprintf(name, sizeof name, "rank %d: ", rank);
	return fail(status_said(o->status), "%s%s%s", before, name, message);
}

const char *outcome_behind_name(const char *message, int rank)
{
	char name[24];
	size_t n = (size_t)snprintf(name, sizeof name, "rank %d", rank);

	if (strncasecmp(message, name, n) == 0 && (message[n] == ' ' || message[n] == ':'))
		return message + n;
	return NULL;
}

/* The purposes of two calls, from the message that says how they differ: the text reaches every
 * rank, whichever of them has found the mismatch. call_record_mismatch writes it. */
#include "collectives/api/purpose.h"

#include "collectives/trace/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* text: "rank 2 called all_gatherv(f32, 12) as #3 for purpose 6", and more from end on. */
static bool purpose_read(const char *text, const char *end, struct rank_purpose *call)
{
	const char *purpose = strstr(text, CALL_PURPOSE);
	bool has_one = purpose && purpose < end;
	int is_whole = 0;

	call->purpose = has_one ? (uint32_t)strtoul(purpose + strlen(CALL_PURPOSE), NULL, 10) : 0;
	return sscanf(text, "rank %d called%n", &call->rank, &is_whole) == 1 && is_whole;
}

bool purposes_differ(const char *message, struct rank_purpose calls[2])
{
	static const char between[] = ", rank ";
	const char *first = strstr(message, CALL_MISMATCH), *second;

	if (!first)
		return false;
	first += strlen(CALL_MISMATCH);
	second = strstr(first, between);
	return second && purpose_read(first, second, &calls[0]) &&
	       purpose_read(second + 2, second + strlen(second), &calls[1]) &&
	       calls[0].purpose != calls[1].purpose;
}

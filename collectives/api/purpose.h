/* What a collective call is for: a number that libtutti_train gives its gathers, and that the ranks
 * compare as they compare the count. If the numbers differ, the call is MISMATCH on all ranks, and
 * its message names two ranks and their numbers. Costs no message, and works wherever calls are
 * compared: in the window, by messages, by kernels. */
#ifndef COLLECTIVES_API_PURPOSE_H
#define COLLECTIVES_API_PURPOSE_H

#include "core/words/export.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

/* In reserved[0], so that a program's own value there has no meaning, as before. */
#define PURPOSE_MARK 0x7075727000000000u

/* Of a collective without a root. 0: none. */
static inline void purpose_set(tutti_call *call, uint32_t purpose)
{
	call->reserved[0] = PURPOSE_MARK | purpose;
}

static inline uint32_t purpose_of(const tutti_call *call)
{
	return call->reserved[0] >> 32 == PURPOSE_MARK >> 32 ? (uint32_t)call->reserved[0] : 0;
}

struct rank_purpose {
	int rank;
	uint32_t purpose; /* 0: none */
};

/* Reads the message of a MISMATCH. False: it does not name two calls, or they have one purpose. */
bool purposes_differ(const char *message, struct rank_purpose calls[2])
	TUTTI_PRIVATE(purposes_differ);

#endif

/* The checks of a call's arguments before it uses a sequence number or sends anything. An
 * error is INVALID (UNSUPPORTED for a stream without CUDA), with a message that begins with the
 * call's name. */
#ifndef COLLECTIVES_API_COLLECTIVES_H
#define COLLECTIVES_API_COLLECTIVES_H

#include "collectives/comm/comm.h"

/* Checks the fields of call. The stream of a group's member is not used. */
tutti_status collectives_check_call(const char *name, const tutti_call *call);
/* The counts and offsets of a v-variant, by the thread that has entered the call: offsets that the
 * caller left NULL are packed into memory of comm. Where all ranks have the same counts they come
 * as those of the sending side, and are those of both afterwards. */
tutti_status collectives_check_counts(struct call_args *args, tutti_comm *comm);

#endif

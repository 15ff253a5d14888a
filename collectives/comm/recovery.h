/* Inside comm/: what tutti_comm_agree, _shrink and _grow have in common. */
#ifndef COLLECTIVES_COMM_RECOVERY_H
#define COLLECTIVES_COMM_RECOVERY_H

#include "collectives/comm/comm.h"
#include "collectives/control/control.h"

/* comm_enter and comm_leave around a call that works on a failed communicator too: waits of this
 * thread in between end only when the communicator is aborted again (core/cancel.h). */
tutti_status comm_enter_recovery(struct tutti_comm *comm, const char *name);
void comm_leave_recovery(struct tutti_comm *comm);
/* Puts question to the ranks of comm that still take part (consensus.h). which: a call adds a
 * multiple of 4 to its own number of these for each question. Fills in number, has_ended and arg,
 * which is comm for wait as well. */
enum { CALL_AGREE, CALL_SHRINK, CALL_GROW };
tutti_status comm_ask(struct tutti_comm *comm, struct consensus_question *question, uint32_t which,
		      uint8_t *marks, void *records);

#endif

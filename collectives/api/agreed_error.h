/* Errors that all ranks of a communicator return: for layers above, which make several calls in one. */
#ifndef COLLECTIVES_API_AGREED_ERROR_H
#define COLLECTIVES_API_AGREED_ERROR_H

#include "core/words/export.h"

#include "core/status.h"

/* Collective: OK if own is OK on every rank. Otherwise all ranks return the same failure: of the
 * first rank whose error does not follow from another rank's, if there is one. If comm fails
 * meanwhile, a rank returns its own failure, or comm's. own's message is this thread's last error:
 * if other calls came between, kept_error_note has kept it. */
tutti_status error_agree(tutti_comm *comm, tutti_status own) TUTTI_PRIVATE(error_agree);
/* Collective: all ranks return the failure of rank root, which is not OK. Elsewhere its message
 * begins with "On rank 3: ". */
tutti_status error_broadcast(tutti_comm *comm, struct kept_error *error, int root)
	TUTTI_PRIVATE(error_broadcast);

#endif

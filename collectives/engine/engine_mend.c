/* A rank that is in no call has peers all the same. Bytes of its last messages may have been lost
 * with the connection that they were on, and then a peer waits in a call that is over here: the
 * transports that send them again need somebody who lets them. That is the helper thread, and
 * destroy. */
#include "collectives/engine/run.h"

void engine_mend(struct engine *e, struct mending *m)
{
	m->count = 0;
	m->is_due = false;
	for (int i = 0; i < e->config.endpoint_count; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		int fd = -1;
		if (!ep->transport->mend)
			continue;
		m->is_due |= ep->transport->mend(ep, &fd) != 0;
		if (fd >= 0 && m->count == MEND_FDS)
			m->is_due = true;
		else if (fd >= 0)
			m->fds[m->count++] = fd;
	}
}

bool engine_in_doubt(struct engine *e)
{
	for (int i = 0; i < e->config.endpoint_count; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		if (ep->transport->in_doubt && ep->transport->in_doubt(ep))
			return true;
	}
	return false;
}

/* Ios that have ended, on their way from an endpoint to the caller of its progress. */
#ifndef TRANSPORT_DONE_LIST_H
#define TRANSPORT_DONE_LIST_H

#include <tutti/transport.h>

/* Moves all ios of from to the end of to. Returns whether there were any. */
static inline int done_list_take(struct tutti_done *to, struct tutti_done *from)
{
	if (!from->head)
		return 0;
	*to->tail = from->head;
	to->tail = from->tail;
	tutti_done_init(from);
	return 1;
}

/* conn is being closed: its ios are forgotten. */
static inline void done_list_forget(struct tutti_done *done, const struct tutti_conn *conn)
{
	struct tutti_io **at = &done->head;

	while (*at) {
		if ((*at)->conn == conn)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	done->tail = at;
}

#endif

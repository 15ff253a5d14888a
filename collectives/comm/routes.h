/* The routes of a collective call: which part of the library serves it. docs/architecture.md says
 * how a route is added. */
#ifndef COLLECTIVES_COMM_ROUTES_H
#define COLLECTIVES_COMM_ROUTES_H

#include "collectives/comm/comm.h"
#include "collectives/trace/recorder.h"

/* How a call ends for its caller. */
enum route_ending {
	ROUTE_WAITS,     /* it returns when it is over; from comm_begin_wait on it waits for that */
	ROUTE_IN_STREAM, /* it returns at once, and the later work of its stream waits            */
	ROUTE_HANDLED,   /* it returns at once, and a handle or a callback says the rest          */
};

/* A call that is being issued. */
struct route_call {
	const struct tutti_comm *comm;
	const struct call_args *args;
	const tutti_call *call;     /* or NULL                                               */
	const struct route *route;  /* NULL: it is a message                                 */
	bool is_selected_for_window; /* every call of the communicator is, or this one       */
	const struct algorithm *algorithm; /* NULL: the window's, or none                    */
	const struct memory_kind *memory;  /* of its buffers                                 */
	bool is_ordered; /* it begins after the work that its stream has now         */
	enum route_ending ending;
	struct call_record record; /* as the communicator's next call                        */
};

struct route {
	const char *name;
	/* Depends on what all ranks agree on, and on whether the call goes into a graph. */
	bool (*serves)(const struct route_call *c);
	/* Writes c->algorithm and c->memory where they are not as selected, and refuses what this
	 * rank cannot ask for, by route_check_memory too. The call may never be made. */
	tutti_status (*check)(struct route_call *c);
	/* Starts it, when route_take_number has made it the communicator's next call. An error before
	 * that leaves the communicator as it is. */
	tutti_status (*begin)(struct tutti_comm *comm, const struct route_call *c);
	bool by_kernels;   /* of the device: all of it, or the part of a node */
	bool is_in_stream; /* it is an operation of the call's stream: nothing has to wait for it */
};

/* That of plain calls on host memory, which take it without route_find. */
extern const struct route route_window;

/* Fills in c, of which comm, args and call are set, as far as its route. */
tutti_status route_find(struct route_call *c);

/* Fills in c's stream and ending. */
tutti_status route_find_stream(struct route_call *c);
/* The call becomes the communicator's next. */
void route_take_number(struct tutti_comm *comm, const struct route_call *c);
/* Hands out the work of a call that does not wait, or makes its stream wait for it. */
tutti_status route_submit(struct tutti_comm *comm, const struct route_call *c,
			  const struct task_spec *spec);
bool route_goes_into_graph(const tutti_call *call); /* what is put into its stream         */

/* An all_to_all in place would overwrite blocks that it still has to send. */
static inline bool route_copies_send(const struct call_args *args)
{
	return args->send && args->send == args->recv &&
	       collective_pattern(args->collective) == COLL_ALL_TO_ALL;
}

/* From here on the thread, which is in a call, waits. */
static inline void comm_begin_wait(struct tutti_comm *comm)
{
	atomic_store_explicit(&comm->calls.is_issuing, 2, memory_order_relaxed);
}

#endif

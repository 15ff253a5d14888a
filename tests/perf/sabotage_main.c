/* Benchmarks that go wrong: linked between a collective's own program and the library, this spoils
 * what the last rank has, in the call of number SPOIL_RECV one element that arrived, in that of
 * number SPOIL_SEND one that was sent. The barrier that it makes of an asynchronous one holds
 * nobody back. No main: that is the program's. */
#include <tutti/tutti.h>

#define SPOIL_RECV 3
#define SPOIL_SEND 5

/* What the linker's --wrap calls the library's functions, and these. */
#define WRAP(name, ...)                                                                            \
	tutti_status __real_tutti_##name(__VA_ARGS__);                                             \
	tutti_status __wrap_tutti_##name(__VA_ARGS__);                                             \
	tutti_status __wrap_tutti_##name(__VA_ARGS__)

/* The driver's own calls are of other types. Elements that this rank has sent and received. */
static void spoil(const void *send, size_t sent, void *recv, size_t received, tutti_dtype dtype,
		  const tutti_comm *comm)
{
	static int calls;

	if (dtype != TUTTI_F32 || tutti_rank(comm) != tutti_size(comm) - 1)
		return;
	if (calls == SPOIL_RECV)
		((unsigned char *)recv)[received * sizeof(float) - 1] ^= 1;
	if (calls == SPOIL_SEND)
		((unsigned char *)send)[(sent - 1) * sizeof(float)] ^= 1;
	calls++;
}

static size_t all_of(size_t count, const tutti_comm *comm)
{
	return count * (size_t)tutti_size(comm);
}

WRAP(all_reduce, const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_op op,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_all_reduce(send, recv, count, dtype, op, comm, call);

	spoil(send, count, recv, count, dtype, comm);
	return status;
}

WRAP(reduce, const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_op op, int root,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_reduce(send, recv, count, dtype, op, root, comm, call);

	spoil(send, count, recv, count, dtype, comm);
	return status;
}

WRAP(broadcast, const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_broadcast(send, recv, count, dtype, root, comm, call);

	spoil(send, count, recv, count, dtype, comm);
	return status;
}

WRAP(all_gather, const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_comm *comm,
     const tutti_call *call)
{
	tutti_status status = __real_tutti_all_gather(send, recv, count, dtype, comm, call);

	spoil(send, count, recv, all_of(count, comm), dtype, comm);
	return status;
}

WRAP(reduce_scatter, const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_op op,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_reduce_scatter(send, recv, count, dtype, op, comm, call);

	spoil(send, all_of(count, comm), recv, count, dtype, comm);
	return status;
}

WRAP(gather, const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_gather(send, recv, count, dtype, root, comm, call);

	spoil(send, count, recv, all_of(count, comm), dtype, comm);
	return status;
}

WRAP(scatter, const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
     tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = __real_tutti_scatter(send, recv, count, dtype, root, comm, call);

	spoil(send, all_of(count, comm), recv, count, dtype, comm);
	return status;
}

WRAP(all_to_all, const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_comm *comm,
     const tutti_call *call)
{
	tutti_status status = __real_tutti_all_to_all(send, recv, count, dtype, comm, call);

	spoil(send, all_of(count, comm), recv, all_of(count, comm), dtype, comm);
	return status;
}

/* The messages of the group that is open: what they move is there when it has ended. */
static struct {
	const void *send;
	void *recv;
	size_t sent, received;
	tutti_dtype dtype;
	const tutti_comm *comm;
} group;

WRAP(send, const void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
     const tutti_call *call)
{
	group.send = buf;
	group.sent = count;
	group.dtype = dtype;
	group.comm = comm;
	return __real_tutti_send(buf, count, dtype, peer, comm, call);
}

WRAP(recv, void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
     const tutti_call *call)
{
	group.recv = buf;
	group.received = count;
	return __real_tutti_recv(buf, count, dtype, peer, comm, call);
}

WRAP(group_end, const tutti_call *call)
{
	tutti_status status = __real_tutti_group_end(call);

	spoil(group.send, group.sent, group.recv, group.received, group.dtype, group.comm);
	return status;
}

/* The driver's own barriers are blocking ones, and stay. Of the others nobody waits for anybody,
 * but that rank 1 leaves the first one only when rank 0 is in its third: so rank 0 has left the
 * second long before rank 1 enters it. */
WRAP(barrier, tutti_comm *comm, const tutti_call *call)
{
	static int calls;
	static char byte;
	int number = calls;

	if (!call)
		return __real_tutti_barrier(comm, call);
	calls++;
	*call->work = NULL;
	if (number == 2 && tutti_rank(comm) == 0)
		return tutti_send(&byte, 1, TUTTI_I8, 1, comm, NULL);
	if (number == 0 && tutti_rank(comm) == 1)
		return tutti_recv(&byte, 1, TUTTI_I8, 0, comm, NULL);
	return TUTTI_OK;
}

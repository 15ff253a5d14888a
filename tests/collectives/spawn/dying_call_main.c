/* Kills a rank of examples/calls/average.c and evaluate.c (SIGKILL) before its tutti_all_reduce of
 * a number, while the other ranks come to it, or wait in it: DIES=RANK:NUMBER, from 1. */
#include <tutti/tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

tutti_status __real_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call);

tutti_status __wrap_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	static int calls;
	const char *dies = getenv("DIES");
	int rank, number;

	calls++;
	if (dies && sscanf(dies, "%d:%d", &rank, &number) == 2 && rank == tutti_rank(comm) &&
	    number == calls)
		raise(SIGKILL);
	return __real_tutti_all_reduce(send, recv, count, dtype, op, comm, call);
}

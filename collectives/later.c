/* Functions of tutti.h that are not built yet: each says so. */
#include "core/status.h"

static tutti_status later(const char *name)
{
	return fail(TUTTI_ERR_UNSUPPORTED, "%s is not built yet in Tutti %s", name,
		    tutti_version());
}

tutti_status tutti_comm_shrink(tutti_comm *comm, tutti_comm **survivors)
{
	(void)comm, (void)survivors;
	return later("tutti_comm_shrink");
}

tutti_status tutti_comm_agree(tutti_comm *comm, int *flag)
{
	(void)comm, (void)flag;
	return later("tutti_comm_agree");
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	(void)send, (void)recv, (void)count, (void)dtype, (void)op, (void)root, (void)comm,
		(void)call;
	return later("tutti_reduce");
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	(void)send, (void)recv, (void)count, (void)dtype, (void)root, (void)comm, (void)call;
	return later("tutti_gather");
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	(void)send, (void)recv, (void)count, (void)dtype, (void)root, (void)comm, (void)call;
	return later("tutti_scatter");
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	(void)send, (void)recv, (void)count, (void)dtype, (void)comm, (void)call;
	return later("tutti_all_to_all");
}

tutti_status tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
			       const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	(void)send, (void)recv, (void)counts, (void)offsets, (void)dtype, (void)comm, (void)call;
	return later("tutti_all_gatherv");
}

tutti_status tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
				   const size_t *offsets, tutti_dtype dtype, tutti_op op,
				   tutti_comm *comm, const tutti_call *call)
{
	(void)send, (void)recv, (void)counts, (void)offsets, (void)dtype, (void)op, (void)comm;
	(void)call;
	return later("tutti_reduce_scatterv");
}

tutti_status tutti_gatherv(const void *send, void *recv, const size_t *counts,
			   const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			   const tutti_call *call)
{
	(void)send, (void)recv, (void)counts, (void)offsets, (void)dtype, (void)root, (void)comm;
	(void)call;
	return later("tutti_gatherv");
}

tutti_status tutti_scatterv(const void *send, void *recv, const size_t *counts,
			    const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			    const tutti_call *call)
{
	(void)send, (void)recv, (void)counts, (void)offsets, (void)dtype, (void)root, (void)comm;
	(void)call;
	return later("tutti_scatterv");
}

tutti_status tutti_all_to_allv(const void *send, const size_t *send_counts,
			       const size_t *send_offsets, void *recv, const size_t *recv_counts,
			       const size_t *recv_offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	(void)send, (void)send_counts, (void)send_offsets, (void)recv, (void)recv_counts;
	(void)recv_offsets, (void)dtype, (void)comm, (void)call;
	return later("tutti_all_to_allv");
}

tutti_status tutti_group_begin(void)
{
	return later("tutti_group_begin");
}

tutti_status tutti_group_end(const tutti_call *call)
{
	(void)call;
	return later("tutti_group_end");
}

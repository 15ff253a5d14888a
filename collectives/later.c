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

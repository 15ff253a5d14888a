/* libibverbs, loaded once in a process. */
#include "transport/verbs/library.h"

#include "core/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NAME "libibverbs.so.1"

/* The header's macros would stand in the names below. */
#undef ibv_reg_mr
#undef ibv_query_port

static struct verbs_library loaded;
static char reason[240]; /* why it is not, or "" */

static void *verbs_find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol && !reason[0])
		snprintf(reason, sizeof reason,
			 NAME " has no %s: it is too old (rdma-core 34 or later is needed)", name);
	return symbol;
}

static void verbs_load(void)
{
	void *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
	void *symbol;

	if (!library) {
		snprintf(reason, sizeof reason, "%s (Debian: libibverbs1, ibverbs-providers)",
			 dlerror());
		return;
	}
#define FUNCTION(result, name, parameters)                                                         \
	symbol = verbs_find(library, "ibv_" #name);                                                \
	memcpy(&loaded.name, &symbol, sizeof symbol);
	VERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
	symbol = verbs_find(library, "ibv_query_port");
	memcpy(&loaded.port_query, &symbol, sizeof symbol);
	symbol = verbs_find(library, "_ibv_query_gid_ex");
	memcpy(&loaded.gid_query, &symbol, sizeof symbol);
	/* Before anything is registered: a fork does not take registered pages away from here. */
	if (!reason[0])
		loaded.fork_init();
}

tutti_status verbs_library(const struct verbs_library **library)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, verbs_load);
	if (reason[0])
		return fail(TUTTI_ERR_UNSUPPORTED, "verbs: %s", reason);
	*library = &loaded;
	return TUTTI_OK;
}

bool verbs_library_is_loaded(void)
{
	void *library = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library != NULL;
}

/* As ibv_query_port of the header, which calls the function of that name. */
int verbs_port_query(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr)
{
	struct verbs_context *own = verbs_get_ctx_op(context, query_port);

	memset(attr, 0, sizeof *attr);
	return own ? own->query_port(context, port, attr, sizeof *attr)
		   : library->port_query(context, port, attr);
}

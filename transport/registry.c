/* Which transports there are, and which of them a filter admits. Plugins stay loaded until the
 * process ends, for connections may outlive the communicator that asked for them. */
#include "transport/registry.h"

#include "core/callback.h"
#include "core/status.h"
#include "core/words/nearest.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct tutti_transport *const built_in[] = {
	&transport_shm,
#ifdef TUTTI_VERBS
	&transport_verbs,
#endif
#ifdef TUTTI_UCX
	&transport_ucx,
#endif
	&transport_tcp,
};

#define BUILT_IN ((int)(sizeof built_in / sizeof *built_in))
_Static_assert(BUILT_IN < TRANSPORTS_MAX, "a plugin has room");

typedef const struct tutti_transport *(*plugin_fn)(void);

static bool registry_is_whole(const struct tutti_transport *t)
{
	return t->name && t->name[0] && t->kinds && t->open && t->reach && t->connect && t->send &&
	       t->recv && t->progress && t->close && t->destroy &&
	       (t->event_fd == NULL) == (t->arm == NULL) &&
	       (t->map == NULL) == (t->unmap == NULL) && (t->mend == NULL) == (t->in_doubt == NULL);
}

static tutti_status registry_plugin_load(const struct tutti_transport **transport, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct tutti_transport *t;
	plugin_fn plugin;
	void *symbol;

	if (!library)
		return fail(TUTTI_ERR_INVALID, "TUTTI_TRANSPORT_PLUGIN cannot be loaded: %s",
			    dlerror());
	symbol = dlsym(library, "tutti_transport_plugin");
	if (!symbol)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_TRANSPORT_PLUGIN=%s is no transport: it has no function "
			    "tutti_transport_plugin",
			    path);
	memcpy(&plugin, &symbol, sizeof plugin);
	callback_call("the function", "TUTTI_TRANSPORT_PLUGIN", -1, t = plugin());
	if (!t || t->abi != TUTTI_TRANSPORT_ABI)
		return fail(
			TUTTI_ERR_INVALID,
			"TUTTI_TRANSPORT_PLUGIN=%s was built for version %u of tutti/transport.h, "
			"this library has version %d: build it again",
			path, t ? t->abi : 0, TUTTI_TRANSPORT_ABI);
	if (!registry_is_whole(t))
		return fail(
			TUTTI_ERR_INVALID,
			"TUTTI_TRANSPORT_PLUGIN=%s leaves out a function, the name or the kinds of "
			"memory that every transport has",
			path);
	*transport = t;
	return TUTTI_OK;
}

static int registry_find(const struct tutti_transport *const *list, int count, const char *name,
			 size_t n)
{
	for (int i = 0; i < count; i++)
		if (strlen(list[i]->name) == n && strncmp(list[i]->name, name, n) == 0)
			return i;
	return -1;
}

static tutti_status registry_unknown(const struct tutti_transport *const *list, int count,
				     const char *name, size_t n)
{
	char names[200] = "", guess[64] = "";

	for (int i = 0; i < count; i++) {
		size_t used = strlen(names);
		snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", list[i]->name);
		if (nearest_distance(name, n, list[i]->name) <= 1)
			snprintf(guess, sizeof guess, " (did you mean %s?)", list[i]->name);
	}
	return fail(TUTTI_ERR_INVALID, "there is no transport \"%.*s\"%s; those here are: %s",
		    n < 60 ? (int)n : 60, name, guess, names);
}

/* Which of the list the filter names. */
static tutti_status registry_take_names(bool *is_named, const struct tutti_transport *const *list,
					int count, const char *names)
{
	for (const char *p = names;; p++) {
		size_t n = strcspn(p, ",");
		const char *end = p + n;
		int found;
		while (n > 0 && *p == ' ')
			p++, n--;
		while (n > 0 && p[n - 1] == ' ')
			n--;
		found = registry_find(list, count, p, n);
		if (found < 0)
			return registry_unknown(list, count, p, n);
		is_named[found] = true;
		if (*end == '\0')
			return TUTTI_OK;
		p = end;
	}
}

tutti_status transport_list(const struct tutti_transport **list, int *count, const char *filter,
			    const struct env *env)
{
	const struct tutti_transport *all[TRANSPORTS_MAX] = {NULL};
	bool is_named[TRANSPORTS_MAX] = {false}, names_what_is_out = filter && filter[0] == '^';
	int here = 0, admitted = 0;

	if (filter && filter[0] == '\0')
		filter = NULL;
	if (env && env->transport_plugin)
		TRY(registry_plugin_load(&all[here++], env->transport_plugin));
	for (int i = 0; i < BUILT_IN; i++) {
		if (registry_find(all, here, built_in[i]->name, strlen(built_in[i]->name)) >= 0)
			return fail(
				TUTTI_ERR_INVALID,
				"TUTTI_TRANSPORT_PLUGIN=%s calls itself %s, as a transport of this "
				"library does",
				env->transport_plugin, built_in[i]->name);
		all[here++] = built_in[i];
	}
	if (filter)
		TRY(registry_take_names(is_named, all, here, filter + names_what_is_out));
	for (int i = 0; i < here; i++)
		if (!filter || is_named[i] != names_what_is_out)
			list[admitted++] = all[i];
	if (admitted == 0)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_TRANSPORTS=%s leaves no transport: name one, or unset it",
			    filter);
	*count = admitted;
	return TUTTI_OK;
}

static bool registry_is_listed(const struct tutti_transport *const *list, int count,
			       const struct tutti_transport *transport)
{
	for (int i = 0; i < count; i++)
		if (list[i] == transport)
			return true;
	return false;
}

const struct tutti_transport *transport_widest(const struct tutti_transport *const *list, int count)
{
	return registry_is_listed(list, count, &transport_tcp) ? &transport_tcp : list[0];
}

bool transport_shares_memory(const struct tutti_transport *const *list, int count)
{
	return registry_is_listed(list, count, &transport_shm);
}

const char *transport_names(const struct tutti_transport *const *list, int count, char *text,
			    size_t bytes)
{
	size_t at = 0;

	text[0] = '\0';
	for (int i = 0; i < count && at < bytes; i++)
		at += (size_t)snprintf(text + at, bytes - at, "%s%s", i ? "," : "", list[i]->name);
	return text;
}

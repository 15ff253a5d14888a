/* The functions that this rank has registered, by name. */
#include "core/words/nearest.h"
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 64 };

static uint64_t functions_hash_of(const char *name, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3u;
	return hash ^ hash >> 32;
}

const struct rpc_function *rpc_functions_find(const tutti_rpc *rpc, const char *name, size_t bytes)
{
	uint64_t hash = functions_hash_of(name, bytes);
	const struct rpc_function *f = rpc->functions[hash % BUCKETS];

	while (f &&
	       (f->hash != hash || f->name_bytes != bytes || memcmp(f->name, name, bytes) != 0))
		f = f->next;
	return f;
}

static tutti_status functions_check(const tutti_rpc *rpc, const tutti_rpc_function *function,
				    bool is_own)
{
	size_t bytes = function->name ? strlen(function->name) : 0;

	if (bytes < 1 || bytes > RPC_NAME_BYTES)
		return fail_invalid("tutti_rpc_register: a function's name has 1 to %d bytes, not "
				    "%zu",
				    RPC_NAME_BYTES, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (function->name[i] < ' ' || function->name[i] > '~')
			return fail_invalid("tutti_rpc_register: byte %zu of a function's name is "
					    "not printable",
					    i);
	if (!is_own && strncmp(function->name, "tutti.", 6) == 0)
		return fail_invalid("tutti_rpc_register: '%s': names with 'tutti.' are the "
				    "library's own",
				    function->name);
	if (!function->fn)
		return fail_invalid("tutti_rpc_register: '%s' has no fn", function->name);
	if (function->flags & ~TUTTI_RPC_SHORT)
		return fail_invalid("tutti_rpc_register: '%s' has flags %d: there is "
				    "TUTTI_RPC_SHORT, %d",
				    function->name, function->flags, TUTTI_RPC_SHORT);
	if (rpc_functions_find(rpc, function->name, bytes))
		return fail_invalid("tutti_rpc_register: '%s' is registered already",
				    function->name);
	return TUTTI_OK;
}

tutti_status rpc_functions_add(tutti_rpc *rpc, const tutti_rpc_function *function, bool is_own)
{
	TRY(functions_check(rpc, function, is_own));
	struct rpc_function *f = calloc(1, sizeof *f);
	if (!f)
		return fail_no_memory("function '%s'", function->name);
	f->name_bytes = strlen(function->name);
	memcpy(f->name, function->name, f->name_bytes);
	f->hash = functions_hash_of(f->name, f->name_bytes);
	f->fn = function->fn;
	f->arg = function->arg;
	f->is_short = function->flags & TUTTI_RPC_SHORT;
	f->is_own = is_own;
	f->next = rpc->functions[f->hash % BUCKETS];
	rpc->functions[f->hash % BUCKETS] = f;
	return TUTTI_OK;
}

void rpc_functions_free(tutti_rpc *rpc)
{
	for (int b = 0; b < BUCKETS; b++)
		while (rpc->functions[b]) {
			struct rpc_function *f = rpc->functions[b];
			rpc->functions[b] = f->next;
			free(f);
		}
}

const char *rpc_functions_nearest(const tutti_rpc *rpc, const char *name, size_t bytes)
{
	struct nearest nearest = nearest_to(name, bytes);

	for (int b = 0; b < BUCKETS; b++)
		for (const struct rpc_function *f = rpc->functions[b]; f; f = f->next)
			if (strncmp(f->name, "tutti.", 6) != 0)
				nearest_try(&nearest, f->name);
	return nearest.name;
}

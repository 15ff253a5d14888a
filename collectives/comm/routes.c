/* Which route a collective call takes. */
#include "collectives/comm/routes.h"

#define ROUTE_ENTRY(name) &route_##name,
static const struct route *const routes[] = {ROUTES(ROUTE_ENTRY)};

/* The kind of memory of the call's buffers; a rank that has none of them here says host. */
static tutti_status route_find_memory(struct route_call *c)
{
	const struct call_args *a = c->args;

	c->memory = memory_of(a->recv ? a->recv : a->send);
	if (a->send && a->recv && a->send != a->recv && memory_of(a->send) != c->memory)
		return fail(TUTTI_ERR_INVALID, "%s: send is %s memory and recv is %s memory",
			    collective_name(a->collective), memory_of(a->send)->name,
			    c->memory->name);
	return TUTTI_OK;
}

/* What serves the call unless its memory or its stream asks for another route. */
static tutti_status route_find_algorithm(struct route_call *c)
{
	const struct select *select = &c->comm->select;

	c->algorithm = NULL;
	c->is_selected_for_window = false;
	if (c->args->collective == COLL_MEM_ALLOC)
		return TUTTI_OK;
	if (!select_is_window(select))
		TRY(select_algorithm(select, c->args, &c->algorithm));
	c->is_selected_for_window = !c->algorithm || !c->algorithm->build;
	return TUTTI_OK;
}

tutti_status route_find(struct route_call *c)
{
	const struct route *const *route = routes;
	tutti_status status = engine_status(c->comm->engine);

	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(c->comm->engine));
	TRY(route_find_algorithm(c));
	TRY(route_find_memory(c));
	/* The last one serves all. */
	while (!(*route)->serves(c))
		route++;
	c->route = *route;
	return c->route->check(c);
}

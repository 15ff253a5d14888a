/* The failure of a work that has ended, in words: its own, its group's, or the communicator's. */
#include "collectives/engine/engine_internal.h"

const char *work_error(const struct tutti_work *work, char *text)
{
	if (work->parts)
		return work->parts->why;
	if (work->own_status == TUTTI_OK)
		return engine_error(work->engine);
	work->spec.kind->why(work, text, ERROR_BYTES);
	return text;
}

static void show_failure(const struct tutti_work *work)
{
	if (!work->parts)
		engine_show_failure(work->engine);
	for (size_t i = 0; work->parts && i < work->parts->engine_count; i++)
		engine_show_failure(work->parts->engine[i]);
}

tutti_status work_result(const struct tutti_work *work)
{
	char text[ERROR_BYTES];
	if (__builtin_expect(work->status == TUTTI_OK, 1))
		return TUTTI_OK;
	show_failure(work);
	return fail(work->status, "%s", work_error(work, text));
}

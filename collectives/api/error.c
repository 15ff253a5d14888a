/* tutti_set_error: how layers above the library explain their own failures. */
#include "core/status.h"

tutti_status tutti_set_error(tutti_status status, const char *message)
{
	return fail(status, "%s", message ? message : "");
}

/* In place of tf_config.c, in a build without jansson. */
#include "core/join/launcher.h"

#include "core/status.h"

tutti_status tf_config_read(struct job *job, const char *text)
{
	(void)job, (void)text;
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "TF_CONFIG is set, but this build of Tutti cannot read it: jansson was not "
		    "installed (Debian: libjansson-dev), or TUTTI_JSON was off. Build Tutti with "
		    "jansson, or start the ranks with tuttirun");
}

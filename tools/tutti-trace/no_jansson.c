/* In place of parse.c, in a build without jansson. */
#include "merge.h"

bool load_text(struct log *log, const char *text, char *why, size_t why_bytes)
{
	(void)log, (void)text;
	snprintf(why, why_bytes,
		 "this build of Tutti cannot read traces: jansson was not installed (Debian: "
		 "libjansson-dev), or TUTTI_JSON was off");
	return false;
}

/* Replaces flags_file.c in a build without jansson. */
#include "train/flags/flags.h"

tutti_status flags_read_text(tutti_train_options *options, const char *path, const char *text,
			     size_t bytes)
{
	(void)options, (void)text, (void)bytes;
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "--config '%s': this build of Tutti reads no such file: install jansson "
		    "(Debian: libjansson-dev) and build with TUTTI_JSON, or give the flags "
		    "themselves.",
		    path_shown(path));
}

tutti_status flags_read_file(tutti_train_options *options, const char *path)
{
	return flags_read_text(options, path, NULL, 0);
}

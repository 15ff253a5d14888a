/* Replaces the files that need jansson in a build without it. */
#include "train/base/base.h"
#include "train/checkpoint/checkpoint_index.h"
#include "train/checkpoint/safetensors.h"

tutti_status jansson_needed(void)
{
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "This build of Tutti has no checkpoints and no safetensors files: "
		    "install jansson (Debian: libjansson-dev) and build with TUTTI_JSON.");
}

tutti_status safetensors_print(struct safetensors *file, const char *path, const char *format)
{
	(void)file, (void)path, (void)format;
	return jansson_needed();
}

tutti_status safetensors_parse(struct safetensors *file, const char *path, const char *json,
			       size_t bytes)
{
	(void)file, (void)path, (void)json, (void)bytes;
	return jansson_needed();
}

tutti_status checkpoint_index_print(const struct checkpoint_index *index, char **text,
				    size_t *bytes)
{
	(void)index, (void)text, (void)bytes;
	return jansson_needed();
}

tutti_status checkpoint_index_parse(struct checkpoint_index *index, const char *path,
				    const char *text, size_t bytes)
{
	(void)index, (void)path, (void)text, (void)bytes;
	return jansson_needed();
}

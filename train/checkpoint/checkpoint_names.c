/* The names of checkpoints below a folder, and the text of a checkpoint's COMMIT file. */
#include "train/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void checkpoint_name_print(char text[CHECKPOINT_NAME_BYTES], struct checkpoint_name name)
{
	int n = snprintf(text, CHECKPOINT_NAME_BYTES, "step_%08" PRId64, name.step);

	if (name.again)
		snprintf(text + n, (size_t)(CHECKPOINT_NAME_BYTES - n), ".%u", name.again);
}

bool checkpoint_name_parse(struct checkpoint_name *name, const char *text)
{
	struct checkpoint_name read = {0};
	char again[CHECKPOINT_NAME_BYTES];

	/* Exactly the names that a save writes: 'step_00000200.bak' is none. */
	if (sscanf(text, "step_%19" SCNd64 ".%9u", &read.step, &read.again) < 1 || read.step < 0)
		return false;
	checkpoint_name_print(again, read);
	if (strcmp(again, text) != 0)
		return false;
	*name = read;
	return true;
}

static int compare_newest_first(const void *a, const void *b)
{
	const struct checkpoint_name *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? 1 : -1;
	return (x->again < y->again) - (x->again > y->again);
}

/* Lists the names of the open folder. The caller frees *names also after an error. */
static tutti_status checkpoint_names_list(struct checkpoint_name **names, size_t *count,
					  DIR *folder, const char *dir)
{
	struct checkpoint_name name;

	for (;;) {
		errno = 0;
		struct dirent *entry = readdir(folder);
		if (!entry)
			return errno ? disk_fail("Listing", dir) : TUTTI_OK;
		if (!checkpoint_name_parse(&name, entry->d_name))
			continue;
		TRY(array_grow(names, *count, sizeof name, "a list of checkpoints"));
		(*names)[(*count)++] = name;
	}
}

tutti_status checkpoint_names(struct checkpoint_name **names, size_t *count, const char *dir)
{
	struct checkpoint_name *listed = NULL;
	size_t n = 0;
	DIR *folder = opendir(dir);

	if (!folder)
		return disk_fail("Opening", dir);
	tutti_status status = checkpoint_names_list(&listed, &n, folder, dir);
	closedir(folder);
	if (status != TUTTI_OK) {
		free(listed);
		return status;
	}
	if (n > 1)
		qsort(listed, n, sizeof *listed, compare_newest_first);
	*names = listed;
	*count = n;
	return TUTTI_OK;
}

void checkpoint_commit_text(char text[128], const char *index, size_t bytes)
{
	snprintf(text, 128, "tutti checkpoint 1\nindex.json has %zu bytes, CRC-32C %08" PRIx32 "\n",
		 bytes, tutti_crc32c(0, index, bytes));
}

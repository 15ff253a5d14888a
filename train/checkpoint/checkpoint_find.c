/* Finds the newest whole checkpoint of a folder, or that which the folder is. */
#include "train/checkpoint/checkpoint_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INDEX_LIMIT = 1 << 30, COMMIT_LIMIT = 128 };

/* Reads the index, which the caller frees also after an error, and compares it with COMMIT. */
static tutti_status read_index(const char *path, char **index, size_t *bytes)
{
	char index_path[DISK_PATH_BYTES], commit_path[DISK_PATH_BYTES];
	char *commit, expected[COMMIT_LIMIT];
	size_t commit_bytes;

	TRY(disk_path(index_path, "%s/index.json", path));
	TRY(disk_path(commit_path, "%s/COMMIT", path));
	TRY(disk_read_all(index_path, INDEX_LIMIT, index, bytes));
	TRY(disk_read_all(commit_path, COMMIT_LIMIT, &commit, &commit_bytes));
	checkpoint_commit_text(expected, *index, *bytes);
	bool is_same =
		commit_bytes == strlen(expected) && memcmp(expected, commit, commit_bytes) == 0;
	free(commit);
	return is_same ? TUTTI_OK
		       : fail_invalid("'%s' does not match the COMMIT file beside it: one of them "
				      "is damaged.",
				      path_shown(index_path));
}

static tutti_status check_file(const struct checkpoint_index *index, const char *path,
			       const struct checkpoint_file *file)
{
	char name[CHECKPOINT_FILE_BYTES], file_path[DISK_PATH_BYTES];
	struct stat about;

	checkpoint_file_name(name, file->rank, index->world_size);
	TRY(disk_path(file_path, "%s/%s", path, name));
	if (stat(file_path, &about) != 0)
		return disk_fail("Looking at", file_path);
	if (S_ISREG(about.st_mode) && (uint64_t)about.st_size == file->bytes)
		return TUTTI_OK;
	return fail_invalid("'%s' has %lld bytes instead of %" PRIu64
			    ": it was truncated or replaced.",
			    path_shown(file_path), (long long)about.st_size, file->bytes);
}

static tutti_status check_whole(const struct checkpoint_index *index, const char *path)
{
	TRY(checkpoint_index_check(index));
	for (size_t i = 0; i < index->file_count; i++)
		TRY(check_file(index, path, &index->files[i]));
	return TUTTI_OK;
}

tutti_status checkpoint_dir_read(struct checkpoint_index *index, const char *path)
{
	struct checkpoint_index read = {0};
	char *text = NULL;
	size_t bytes;
	tutti_status status = read_index(path, &text, &bytes);

	if (status == TUTTI_OK)
		status = checkpoint_index_parse(&read, path, text, bytes);
	free(text);
	TRY(status);
	status = check_whole(&read, path);
	if (status == TUTTI_OK)
		*index = read;
	else
		checkpoint_index_finish(&read);
	return status;
}

/* A folder that was renamed, or has the index of another one, does not have the step of its name.
 */
static tutti_status check_checkpoint(const char *path, int64_t step)
{
	struct checkpoint_index index;

	TRY(checkpoint_dir_read(&index, path));
	int64_t found = index.step;
	checkpoint_index_finish(&index);
	if (found == step)
		return TUTTI_OK;
	return fail_invalid("'%s/index.json' is of step %" PRId64
			    ", but its folder is named for step %" PRId64 ".",
			    path_shown(path), found, step);
}

/* Returns OK and sets found->path if the checkpoint is whole; otherwise notes what is wrong. */
static tutti_status try_checkpoint(struct checkpoint_found *found, const char *dir,
				   struct checkpoint_name name)
{
	char text[CHECKPOINT_NAME_BYTES], path[DISK_PATH_BYTES];

	checkpoint_name_print(text, name);
	TRY(disk_path(path, "%s/%s", dir, text));
	tutti_status status = check_checkpoint(path, name.step);
	if (status == TUTTI_OK) {
		strcpy(found->path, path);
		found->step = name.step;
		return TUTTI_OK;
	}
	/* This process cannot read the checkpoint, but it may be whole. */
	if (status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_UNSUPPORTED)
		return status;
	if (found->passed_over++ == 0)
		snprintf(found->message, sizeof found->message, "%s", tutti_comm_error(NULL));
	return TUTTI_OK;
}

/* Whether dir is not a folder of checkpoints but one, by its name and a file that it has. */
static bool is_checkpoint(struct checkpoint_name *name, const char *dir)
{
	static const char *const files[] = {"index.json", "COMMIT"};
	char path[DISK_PATH_BYTES];
	size_t end = strlen(dir);

	while (end > 1 && dir[end - 1] == '/')
		end--;
	if (disk_path(path, "%.*s", (int)end, dir) != TUTTI_OK ||
	    !checkpoint_name_parse(name, strrchr(path, '/') ? strrchr(path, '/') + 1 : path))
		return false;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (disk_path(path, "%s/%s", dir, files[i]) == TUTTI_OK && access(path, F_OK) == 0)
			return true;
	return false;
}

static tutti_status find_itself(struct checkpoint_found *found, const char *dir,
				struct checkpoint_name name)
{
	TRY(check_checkpoint(dir, name.step));
	found->is_dir = true;
	found->step = name.step;
	return disk_path(found->path, "%s", dir);
}

tutti_status checkpoint_dir_find(struct checkpoint_found *found, const char *dir)
{
	struct checkpoint_name *names = NULL;
	struct stat about;
	struct checkpoint_name name;
	size_t count = 0;

	*found = (struct checkpoint_found){.step = -1};
	if (is_checkpoint(&name, dir))
		return find_itself(found, dir, name);
	if (stat(dir, &about) != 0 && errno == ENOENT)
		return TUTTI_OK;
	TRY(checkpoint_names(&names, &count, dir));
	tutti_status status = TUTTI_OK;
	for (size_t i = 0; i < count && status == TUTTI_OK && !found->path[0]; i++)
		status = try_checkpoint(found, dir, names[i]);
	free(names);
	TRY(status);
	if (!found->path[0] && found->passed_over)
		return fail_invalid("All %d checkpoints below '%s' are damaged. The newest: %s",
				    found->passed_over, path_shown(dir), found->message);
	return TUTTI_OK;
}
